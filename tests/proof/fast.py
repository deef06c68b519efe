"""A thousand worlds with modelled models: how often each planted truth is found, with exact intervals."""

import itertools
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from evals.worlds.candidates import Online, candidates
from evals.worlds.content import businesses, load_content
from evals.worlds.model import Model
from evals.worlds.night import play
from evals.worlds.trouble import Kind
from evals.worlds.world import worlds
from pipeline.records import GateDecision, Verdict
from tests.proof.factory import NIGHT, build, configured, gate
from tests.proof.golden import golden_suite
from tests.proof.rollout import follow
from tests.proof.rows import Counted, Row, at_least, at_most
from tests.proof.seen import Case, Seen, base_model, night, see

NIGHTS = 4
_SERIES = ("learned", "noisy", "poisoned")
_SERIES_BUSINESSES = ("support", "kefu", "legal-en", "medical-zh", "finance-en", "travel-zh")
_PROMOTED, _HELD, _ROLLED_BACK = ("promoted", "晋级"), ("held", "被扣留"), ("rolled back", "被回滚")
_Made = TypeVar("_Made")
Tell = Callable[[str, int, int], None]
"""Called with what is played, and how many of how many are done."""


def prove(count: int, processes: int, tell: Tell) -> tuple[list[Row], dict[str, Any]]:
    """Play about `count` worlds; the rows, and the truth scores by night for the plot."""
    each = max(1, count // len(worlds()))
    with ProcessPoolExecutor(processes) as pool:
        seen = list(_told(pool.map(see, _cases(each), chunksize=2), "worlds", each * len(worlds()), tell))
        offline = _judged_candidates(pool, each // 2 or 1, tell)
        online = _canaries(pool, each // 2 or 1, tell)
        runs = [(world, business) for world in _SERIES for business in _SERIES_BUSINESSES]
        series = list(_told(pool.map(_series, runs), "series of nights", len(runs), tell))
    by_world: dict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        by_world[one.case.world].append(one)
    curves: dict[str, list[list[float]]] = defaultdict(list)
    for (world, _), scores in zip(runs, series, strict=True):
        curves[world].append(scores)
    rows = [*_learning_rows(by_world), *_data_rows(seen, by_world), *offline, *online]
    return rows, {"curves": curves, "worlds": len(seen), "seeds": f"0 to {(each - 1) // len(businesses())}"}


def _cases(each: int) -> Iterator[Case]:
    keys = businesses()
    for world in worlds():
        for number in range(each):
            yield Case(world, keys[number % len(keys)], number // len(keys))


def _learning_rows(by_world: dict[str, list[Seen]]) -> list[Row]:
    names = ("learned", "noisy", "flipped", "reversed", "few")
    learned, noisy, flipped, reverse, few = (by_world[name] for name in names)
    worse = [one for one in noisy + flipped + reverse if one.after <= one.before]
    gains = sorted(one.after - one.before for one in learned)
    real = ("a real preference", "真实的偏好")
    return [
        at_least(real, _share(learned, lambda s: s.promoted), 0.8, _PROMOTED),
        Row(
            *real,
            "truth score rises",
            "真实得分上升",
            f"{100 * gains[0]:+.0f} … {100 * gains[len(gains) // 2]:+.0f} … {100 * gains[-1]:+.0f} points",
            gains[0] > 0,
        ),
        at_most(("votes that are coins", "投票如掷硬币"), _share(noisy, lambda s: s.promoted), 0.05, _PROMOTED),
        at_most(("too few users", "用户太少"), _share(few, lambda s: s.promoted), 0, _PROMOTED),
        at_most(
            ("30 % of the votes flipped", "三成投票颠倒"),
            _share(flipped, lambda s: s.promoted and s.after <= s.before),
            0,
            ("a worse adapter promoted", "更差的适配器晋级"),
        ),
        at_most(("70 % of the votes flipped", "七成投票颠倒"), _share(reverse, lambda s: s.promoted), 0, _PROMOTED),
        at_most(
            ("candidates that became no better, of all these", "以上世界中没有变好的候选"),
            _share(worse, lambda s: s.promoted),
            0.05,
            _PROMOTED,
        ),
    ]


def _data_rows(seen: list[Seen], by_world: dict[str, list[Seen]]) -> list[Row]:
    flooded, swarmed = by_world["flooded"], by_world["swarmed"]
    few = [one for one in seen if one.case.world != "swarmed"]
    again = [one for one in seen if one.same_snapshot is not None and one.case.world != "flooded"]
    poison = {
        Kind.FLOOD: ("a flood of thumbs", "刷票"),
        Kind.PUPPETS: ("puppets of one client", "同一客户端的傀儡"),
        Kind.PUSHERS: ("a link pushed into edits", "在修改里塞链接"),
        Kind.CONTRARIAN: ("a contrarian", "专唱反调者"),
    }
    return [
        at_least(
            ("one user floods", "一个用户刷票"),
            _share(flooded, lambda s: s.same_snapshot is True),
            1,
            ("the same snapshot as without", "与没有刷票时同一快照"),
        ),
        *(at_least(name, _sum(few, f"poison {kind}"), 0.95, _HELD) for kind, name in poison.items()),
        at_most(
            ("a swarm of puppets and contrarians", "成群的傀儡与唱反调者"),
            _share(swarmed, lambda s: s.promoted and s.after <= s.before),
            0,
            ("a worse adapter promoted", "更差的适配器晋级"),
        ),
        Row(
            "a swarm of puppets and contrarians",
            "成群的傀儡与唱反调者",
            "held: the rate is told",
            "被扣留：如实报告",
            str(_merged(_sum(swarmed, f"poison {kind}") for kind in poison)),
            None,
        ),
        at_most(("honest interactions", "诚实的互动"), _sum(seen, "honest held"), 0.001, _HELD),
        at_most(
            ("structured personal data", "结构化个人信息"),
            _sum(seen, "structured left"),
            0,
            ("left in a snapshot", "留在快照里"),
        ),
        Row(
            "names, by patterns alone",
            "姓名（只用模式）",
            "left in a snapshot: the rate is told",
            "留在快照里：如实报告",
            str(_sum(seen, "names left")),
            None,
        ),
        at_least(("repeats and paraphrases", "重复与改写"), _sum(seen, "repeats"), 0.99, ("kept as one", "只留一份")),
        at_most(
            ("different questions", "不同的问题"),
            _sum(seen, "different"),
            0,
            ("taken for duplicates", "被当作重复"),
        ),
        at_most(
            ("questions that the gate asks", "把关要问的题"),
            _sum(seen, "leaks"),
            0,
            ("in or near a training row", "出现在训练行里或附近"),
        ),
        at_least(
            ("judgements overruled later", "后来被推翻的评价"),
            _sum(seen, "final"),
            1,
            ("stand as they ended", "以最后为准"),
        ),
        at_least(
            ("every event twice, in another order", "每个事件两次，且乱序"),
            _share(again, lambda s: s.same_snapshot is True),
            1,
            ("the same snapshot", "同一快照"),
        ),
    ]


def _judged_candidates(pool: ProcessPoolExecutor, each: int, tell: Tell) -> list[Row]:
    kinds = candidates().offline
    cases = [(name, number) for name in kinds for number in range(each)]
    decisions = dict(
        zip(cases, _told(pool.map(_judge, cases, chunksize=2), "candidates", len(cases), tell), strict=True)
    )
    rows = []
    for name, kind in kinds.items():
        of_kind = [decision for (of, _), decision in decisions.items() if of == name]
        promoted = Counted(sum(decision.verdict is Verdict.PROMOTE for decision in of_kind), each)
        if kind.caught_by is None:
            rows.append(at_least((f"a candidate: {name}", _ZH[name]), promoted, 0.8, _PROMOTED))
            continue
        named = sum(_stopped_by(decision, kind.caught_by) for decision in of_kind)
        row = at_most((f"a candidate: {name}", _ZH[name]), promoted, 0, _PROMOTED)
        rows.append(replace(row, found=f"{row.found}; `{kind.caught_by}`: {named}"))
    return rows


def _stopped_by(decision: GateDecision, metric: str) -> bool:
    return any(c.metric == metric and c.role != "information" and c.passed is not True for c in decision.checks)


def _judge(case: tuple[str, int]) -> GateDecision:
    name, number = case
    keys = businesses()
    business, seed = keys[number % len(keys)], 1000 + number // len(keys)
    world, content = worlds()["learned"], load_content(business)
    about, suite, before = configured(content), golden_suite(business), base_model(world)
    played = play(world, content, before, seed, NIGHT)
    with tempfile.TemporaryDirectory() as folder:
        built = build(played, about, suite, Path(folder) / "night")
    fields = candidates().offline[name].model_dump(exclude={"caught_by"})
    return gate(built, content, played.truth.topics, before, Model(name="other", seed=seed, **fields), about, suite)


def _canaries(pool: ProcessPoolExecutor, each: int, tell: Tell) -> list[Row]:
    kinds = {"as good as what serves": Online(), **candidates().online}
    cases = [(name, online, number) for name, online in kinds.items() for number in range(each)]
    ends = list(_told(pool.map(_rolled_back, cases, chunksize=2), "canaries", len(cases), tell))
    found = {
        name: Counted(sum(end for (of, *_), end in zip(cases, ends, strict=True) if of == name), each) for name in kinds
    }
    return [
        at_most((f"online {name}", _ZH[name]), counted, 0.05, _ROLLED_BACK)
        if kinds[name] == Online()
        else at_least((f"good offline, online: {name}", _ZH[name]), counted, 0.95, _ROLLED_BACK)
        for name, counted in found.items()
    ]


def _rolled_back(case: tuple[str, Online, int]) -> bool:
    name, online, number = case
    content = load_content(businesses()[number % len(businesses())])
    end = follow(content, configured(content), online, f"{name}/{number}")
    assert end.last is not None
    return end.last.result == "rolled_back"


def _series(run: tuple[str, str]) -> list[float]:
    """Truth scores of what serves, before the first night and after each."""
    world, business = run
    model = base_model(worlds()[world])
    scores: list[float] = []
    for number in range(NIGHTS):
        seen, model = night(Case(world, business, 2001 + number), model)
        scores.append(seen.before)
        last = seen.after if seen.promoted else seen.before
    return [*scores, last]


def _told(results: Iterable[_Made], what: str, total: int, tell: Tell) -> Iterator[_Made]:
    for done, result in zip(itertools.count(1), results):
        tell(what, done, total)
        yield result


def _share(seen: list[Seen], happened: Callable[[Seen], bool]) -> Counted:
    return Counted(sum(map(happened, seen)), len(seen))


def _sum(seen: list[Seen], name: str) -> Counted:
    return _merged(one.counts[name] for one in seen if name in one.counts)


def _merged(each: Iterable[Counted]) -> Counted:
    counts = list(each)
    return Counted(sum(one.happened for one in counts), sum(one.of for one in counts))


_ZH = {
    "wrong data": "候选：用错数据",
    "trained too long": "候选：训练过久",
    "forgets the general questions": "候选：忘了通用题",
    "leaks a telephone number": "候选：泄露电话号码",
    "agrees with everything": "候选：什么都附和",
    "refuses": "候选：拒绝回答",
    "says nothing": "候选：空白回答",
    "really better": "候选：确实更好",
    "as good as what serves": "上线后：与在线版本一样好",
    "three times as slow": "离线好，上线后：慢三倍",
    "cuts streams": "离线好，上线后：断流",
    "asked again more often": "离线好，上线后：常被要求重答",
}
