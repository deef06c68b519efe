"""The parts of the proof, in the order in which they are shown: each is run by itself and keeps its own rows."""

from typing import NamedTuple


class Part(NamedTuple):
    """What a part is called, and what runs it."""

    title: str
    title_zh: str
    command: str
    about: str
    about_zh: str


PARTS = {
    "learning": Part(
        "A preference is learned",
        "学到偏好",
        "make prove ARGS='--only learning'",
        "Simulated users talk through the real gateway; SmolLM2 is trained, gated, brought to all users.",
        "模拟用户经真实网关对话；SmolLM2 被训练、把关并推到全部用户。",
    ),
    "mechanics": Part(
        "Killed, erased, refused",
        "中断、删除与拒绝",
        "make prove ARGS='--only mechanics'",
        "The real stack with a tiny model of random weights: what happens does not depend on what it says.",
        "真实系统，微型随机权重模型：发生什么与模型说什么无关。",
    ),
    "fast": Part(
        "A thousand worlds",
        "一千个世界",
        "make prove-fast",
        "Events, poison screen, cleaning, snapshot, gate and canary are the product's; training and answers are "
        "modelled. Intervals are exact (Clopper and Pearson), 95 %.",
        "事件、投毒筛查、清洗、快照、把关和灰度都是产品代码；训练与回答是模拟的。区间为精确的 95 % 区间。",
    ),
}
