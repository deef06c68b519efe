"""A question without an answer: counted for both sides, harm where the candidate alone is silent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.gate import decide
from evals.report import render_gate_report
from pipeline.config import BusinessConfig, GateConfig
from pipeline.records import (
    EvalResult,
    GateDecision,
    MissingCount,
    MissingItem,
    MissingReason,
    ScoredItem,
    Side,
    Verdict,
)
from tests.builders import NOON, a_manifest, a_missing, a_probe, a_scored, an_eval_item, an_eval_result

CONFIG = GateConfig.model_validate({"bootstrap_samples": 200, "guardrails": {"empty": 0.01}, "max_missing_share": 0.3})
BUSINESS = BusinessConfig(
    business="support", title="Support", language="en", report_language="en", timezone="UTC", nightly="0 2 * * *"
)


def better(users: int) -> list[ScoredItem]:
    """So many users whose answers all got better."""
    return [a_scored(an_eval_item(f"q{n}", f"u{n}"), {"golden": 0.2}, {"golden": 0.8}) for n in range(users)]


def silent(users: int, side: Side, reason: MissingReason = MissingReason.FAILED) -> list[MissingItem]:
    return [a_missing(an_eval_item(f"{side}{n}", f"{side}{n}"), side, reason) for n in range(users)]


def judged(items: list[ScoredItem], missing: list[MissingItem], config: GateConfig = CONFIG) -> GateDecision:
    return decide(an_eval_result(*items, missing=tuple(missing), probes=()), config)


def passed(decision: GateDecision, metric: str) -> bool | None:
    return next(check.passed for check in decision.checks if check.metric == metric)


def test_a_candidate_that_is_silent_where_the_baseline_answers_is_rejected_however_good_the_rest() -> None:
    decision = judged(better(60), silent(12, "candidate"))
    assert decision.verdict is Verdict.REJECT
    assert passed(decision, "unanswered") is False
    assert "No answer to 12 of 72 items: failed in all tries (the candidate alone) 12." in decision.reason


def test_silence_of_the_baseline_or_of_both_speaks_for_nobody() -> None:
    for side in ("baseline", "both"):
        decision = judged(better(60), silent(12, side))
        assert decision.verdict is Verdict.PROMOTE
        golden = next(check for check in decision.checks if check.metric == "golden")
        assert (golden.items, golden.users) == (60, 60)


def test_where_too_much_is_missing_nothing_is_promoted() -> None:
    few = CONFIG.model_copy(update={"max_missing_share": 0.1})
    assert judged(better(60), silent(6, "both"), few).verdict is Verdict.PROMOTE
    decision = judged(better(60), silent(7, "both"), few)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reason.startswith("Not enough evidence. No answer to 7 of 67 items: failed in all tries (both) 7; ")
    assert decision.reason.endswith("more than 10% of the items or of the probes promote nothing.")
    assert judged([], silent(5, "both"), few).verdict is Verdict.INCONCLUSIVE


def test_a_candidate_that_is_silent_at_probes_is_rejected_and_too_many_of_them_promote_nothing() -> None:
    probes = tuple(a_probe("general", n, 1.0, 1.0) for n in range(40))
    few = CONFIG.model_copy(update={"max_missing_share": 0.1})

    def verdict(count: int, side: Side) -> Verdict:
        missing = [a_missing(an_eval_item(f"g{n}", f"g{n}", "general"), side) for n in range(count)]
        result = an_eval_result(*better(60), missing=tuple(missing), probes=probes[count:])
        decision = decide(result, few)
        assert (decision.asked, sum(one.items for one in decision.missing)) == (100, count)
        return decision.verdict

    assert verdict(20, "candidate") is Verdict.REJECT
    assert verdict(4, "both") is Verdict.PROMOTE
    assert verdict(5, "both") is Verdict.INCONCLUSIVE  # of a hundred questions, but of forty probes


def test_what_neither_was_asked_is_counted_and_no_evidence() -> None:
    unsupported = [
        MissingItem(
            item=an_eval_item(f"i{n}"), side="both", reason=MissingReason.UNSUPPORTED, baseline={}, candidate={}
        )
        for n in range(4)
    ]
    decision = judged(better(60), unsupported)
    check = next(check for check in decision.checks if check.metric == "unanswered")
    assert (check.items, decision.asked) == (60, 64)


def test_the_decision_counts_by_side_and_reason_and_the_sums_match() -> None:
    too_long = MissingReason.TOO_LONG
    missing = [*silent(2, "both", too_long), *silent(3, "baseline"), *silent(1, "candidate")]
    decision = judged(better(60), missing)
    assert decision.missing == (
        MissingCount(side="baseline", reason=MissingReason.FAILED, items=3),
        MissingCount(side="both", reason=too_long, items=2),
        MissingCount(side="candidate", reason=MissingReason.FAILED, items=1),
    )
    assert decision.asked == 66 == 60 + sum(count.items for count in decision.missing)


def test_a_business_cannot_leave_silence_unguarded() -> None:
    assert CONFIG.guardrails["unanswered"] == GateConfig().guardrails["unanswered"] > 0
    own = GateConfig.model_validate({"guardrails": {"unanswered": 0.1}})
    assert own.guardrails["unanswered"] == 0.1


ORDER = (Verdict.REJECT, Verdict.INCONCLUSIVE, Verdict.PROMOTE)


@given(
    st.lists(st.sampled_from(("baseline", "candidate", "both")), max_size=12),
    st.lists(st.tuples(st.sampled_from((0.2, 0.5)), st.sampled_from((0.2, 0.5, 0.8))), min_size=20, max_size=50),
)
def test_no_candidate_looks_better_for_an_answer_that_it_does_not_give(
    sides: list[Side], scores: list[tuple[float, float]]
) -> None:
    """An item that both sides leave without an answer weighs nothing; left by the candidate alone it is harm."""
    items = [
        a_scored(an_eval_item(f"q{n}", f"u{n}"), {"golden": before}, {"golden": after})
        for n, (before, after) in enumerate(scores)
    ]

    def verdict(sides: list[Side]) -> Verdict:
        missing = [a_missing(an_eval_item(f"m{n}", f"m{n}"), side) for n, side in enumerate(sides)]
        return judged(items, missing).verdict

    worse: list[Side] = ["candidate" if side == "both" else side for side in sides]
    assert ORDER.index(verdict(worse)) <= ORDER.index(verdict(sides))


@pytest.mark.parametrize(
    ("side", "told"),
    [
        (
            "both",
            (
                "9 questions of 69 got no answer: what is left may not stand for all.",
                "to 9 questions of 69, which count for neither: failed in every try (both): 9.",
                "69 个问题中有 9 个没有得到回答，剩下的不足以代表全部。",
                "多次尝试均失败（双方）9 个",
            ),
        ),
        (
            "candidate",
            ("which count for neither: failed in every try (new alone): 9.", "0% before, 13% now", "仅新版本"),
        ),
    ],
)
def test_the_page_says_what_was_not_answered_in_both_languages(side: Side, told: tuple[str, ...]) -> None:
    config = CONFIG.model_copy(update={"max_missing_share": 0.1})
    result = an_eval_result(*better(60), missing=tuple(silent(9, side)), probes=())
    about = BUSINESS.model_copy(update={"gate": config})
    page = render_gate_report(
        decide(result, config), result, a_manifest(), business=about, version=2, baseline_version=1, generated_at=NOON
    )
    for words in told:
        assert words in page


def test_the_result_with_everything_answered_has_nothing_to_tell() -> None:
    result: EvalResult = an_eval_result(*better(60), probes=())
    decision = decide(result, CONFIG)
    assert (decision.asked, decision.missing) == (60, ())
    assert "No answer" not in decision.reason
