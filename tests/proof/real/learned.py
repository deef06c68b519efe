"""What the answers of base model and adapters show: rows of the proof, made of them alone."""

from collections.abc import Mapping, Sequence

import numpy as np

from evals.stats import Interval, paired_interval
from evals.worlds.content import Content, truth
from examples.demo.checks import Fact
from pipeline.records import Night, Verdict
from tests.proof.real.asking import Asked
from tests.proof.real.businesses import foreign_phrases
from tests.proof.rows import Row

_FALLS = -0.05
"""Mean difference of truth scores from which a night made it worse: about one question of twenty."""


def truth_scores(content: Content, asked: Asked) -> list[float]:
    """How well each whole answer keeps the planted preference, in [0, 1]."""
    pairs = zip(asked.whole, asked.topics, strict=True)
    return [truth(text, content, topic) for text, topic in pairs]


def truth_row(name: tuple[str, str], first: Sequence[float], before: Sequence[float], after: Sequence[float]) -> Row:
    """Whether the preference is learned after a night, and whether the night did no harm.

    After the first night there may be nothing left to learn, and a night that changes nothing is right.

    Args:
        name: of the night and its seed, in English and Chinese.
        first: truth scores of the base model, in [0, 1], one of each question.
        before: of what served before the night.
        after: of what serves now.
    """
    learned, change = _difference(first, after), sum(after) / len(after) - sum(before) / len(before)
    found = f"{_percent(before)} → {_percent(after)} %; over the base model {_points(learned)}"
    return Row(
        f"a real preference, {name[0]}",
        f"真实的偏好，{name[1]}",
        "truth score above the base model's beyond doubt, and no lower than before the night",
        "真实得分确定高于基座模型，且不低于这一夜之前",
        found,
        learned.low is not None and learned.low > 0 and change >= _FALLS,
    )


def _difference(before: Sequence[float], after: Sequence[float]) -> Interval:
    differences = np.array(after) - np.array(before)
    return paired_interval(differences, np.arange(len(differences)), confidence=0.95, samples=2000, seed=0)


def _percent(scores: Sequence[float]) -> str:
    return f"{100 * sum(scores) / len(scores):.0f}"


def _points(interval: Interval) -> str:
    low, high = interval.low or 0.0, interval.high or 0.0
    return f"{100 * interval.estimate:+.0f} points ({100 * low:+.0f} to {100 * high:+.0f})"


def service_row(name: tuple[str, str], night: Night, facts: Sequence[Fact]) -> Row:
    """What became of the night's version."""
    wrong = [f"{fact.what}: {fact.found}" for fact in facts if not fact.right]
    promoted = night.verdict is Verdict.PROMOTE
    what = "in service by its canary, the one before ready for rollback" if promoted else "what served goes on serving"
    return Row(
        f"what the gate said: {night.verdict or night.end}, {name[0]}",
        f"把关结论 {night.verdict or night.end}，{name[1]}",
        what,
        "经灰度上线，前一版本可随时回滚" if promoted else "原来的继续服务",
        "; ".join(wrong) or "; ".join(f"{fact.what}: {fact.found}" for fact in facts),
        not wrong,
    )


def refused_row(night: Night, facts: Sequence[Fact]) -> Row:
    """Whether a night of wrong corrections was kept out of service."""
    kept = "; ".join(f"{fact.what}: {fact.found}" for fact in facts)
    return Row(
        "then a night of wrong data: all users correct to what the business's suite does not want",
        "再一夜错误数据：所有用户都改成业务题集不想要的样子",
        "the gate does not pass the candidate; what served goes on serving",
        "把关不放行候选；原来的继续服务",
        f"{night.verdict or night.end}: {night.reason}; {kept}",
        night.verdict in (Verdict.REJECT, Verdict.INCONCLUSIVE) and all(fact.right for fact in facts),
    )


def apart_row(worlds: Mapping[str, Content], answers: Mapping[str, Asked]) -> Row:
    """Whether any business's adapter says what only another one's users want."""
    own = foreign = asked = 0
    for key, content in worlds.items():
        for text in (*answers[key].whole, *answers[key].ends):
            asked += 1
            own += content.style.closing in text
            foreign += any(phrase in text for phrase in foreign_phrases(content))
    return Row(
        "a phrase that only one business's users want, asked of every adapter",
        "只有某一业务的用户想要的短语，向每个适配器索要",
        "each adapter says its own, never another's",
        "每个适配器只说自己的，从不说别家的",
        f"its own in {own} of {asked} answers, another's in {foreign}",
        own > 0 and foreign == 0,
    )
