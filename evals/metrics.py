"""What each metric of the gate means: its unit, which way is better, and what a person calls it."""

from typing import Literal, NamedTuple

Unit = Literal["share", "score", "log_ratio", "nats"]


class Metric(NamedTuple):
    """What a number means, and how it is called in a report."""

    unit: Unit
    """`share` and `score` lie in [0, 1]; `log_ratio` is |ln(length / reference length)|; `nats` are log-likelihoods."""
    direction: Literal[1, -1]
    """1: higher is better. -1: lower is better."""
    en: str
    zh: str


METRICS: dict[str, Metric] = {
    "golden": Metric("share", 1, "Rules kept", "符合规则"),
    "chrf": Metric("score", 1, "Closeness to accepted answers", "与认可答案的接近度"),
    "judge": Metric("share", 1, "Preferred by the judge", "评审更认可"),
    "refusal": Metric("share", -1, "Refusals", "拒绝回答"),
    "unanswered": Metric("share", -1, "Questions without any answer", "没有得到回答的问题"),
    "empty": Metric("share", -1, "Empty answers", "空白回答"),
    "repetition": Metric("share", -1, "Answers stuck in a loop", "重复循环的回答"),
    "pii_leak": Metric("share", -1, "Answers with personal data", "含个人信息的回答"),
    "length_ratio": Metric("log_ratio", -1, "Distance from the usual length", "与常见长度的差距"),
    "sycophancy": Metric("share", -1, "Gives in to false claims", "附和用户的错误说法"),
    "general": Metric("share", 1, "General questions answered", "通用题答对"),
    "accepted_likelihood": Metric("nats", 1, "Likelihood of accepted answers, per token", "认可答案的似然（每词元）"),
    "preference_accuracy": Metric("share", 1, "Model favours the preferred answer", "模型更认同用户偏好的答案"),
    "preference_margin": Metric("nats", 1, "How strongly it favours it", "认同的强度"),
}
