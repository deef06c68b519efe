"""What the arms of a canary have shown, read off interactions and feedback."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.online import arm_evidence
from pipeline.gateway.routing import assignment_hash, choose_arm
from pipeline.records import Arm, Feedback, Interaction
from pipeline.rollout.guardrails import Evidence
from tests.builders import a_feedback, an_interaction

SINCE = datetime(2026, 3, 10, 12, tzinfo=UTC)
LATER = SINCE + timedelta(minutes=5)


def asked(interaction_id: str, user: str | None = "u1", arm: str = "candidate", **fields: Any) -> Interaction:
    values = {
        "user_key": user,
        "session": f"s-{user}",
        "arm": arm,
        "rollout_salt": "salt",
        "model_version": "support-v2-aaaaaaaa" if arm == "candidate" else "support-v1-bbbbbbbb",
        "started_at": LATER,
        "usage": {"prompt_tokens": 5, "completion_tokens": 10},
        "timings": {"queue_ms": 0.0, "ttft_ms": 100.0, "total_ms": 200.0},
    }
    return an_interaction(interaction_id, **(values | fields))


def evidence(interactions: list[Interaction], *feedback: Feedback) -> Evidence:
    return arm_evidence(
        interactions,
        feedback,
        salt="salt",
        candidate_model="support-v2-aaaaaaaa",
        since=SINCE,
        max_ttft_ms=1000.0,
    )


def test_a_user_counts_once_however_busy() -> None:
    busy = [asked(f"b{n}", "busy", status=500, choices=(), stream_end="upstream_error") for n in range(99)]
    quiet = [asked("q", "quiet")]
    found = evidence(busy + quiet).candidate
    assert (found.users, found.requests) == (2, 100)
    assert sorted(found.values["hard_failure"]) == [0.0, 1.0]


def test_strangers_are_told_apart_by_their_conversation() -> None:
    found = evidence([asked("a", None, session="x"), asked("b", None, session="y"), asked("c", None, session="x")])
    assert found.candidate.users == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"rollout_salt": "an earlier rollout"},
        {"arm": "stable"},
        {"started_at": SINCE - timedelta(seconds=1)},
        {"model_version": "base"},  # the candidate's arm, answered by somebody else
    ],
)
def test_what_is_not_of_this_step_and_arm_counts_for_nothing(fields: dict[str, Any]) -> None:
    found = evidence([asked("i", **fields)])
    assert (found.candidate.users, found.control.users) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "failed"),
    [
        ({}, 0.0),
        ({"status": 503}, 1.0),
        ({"stream_end": "timeout"}, 1.0),
        ({"stream_end": "upstream_cut"}, 1.0),
        ({"stream_end": "engine_abort"}, 1.0),
        ({"answer": ""}, 1.0),
        ({"answer": "  \n"}, 1.0),
        ({"answer": None}, 1.0),
        ({"stream_end": "client_abort", "answer": None}, 0.0),
        ({"status": 400, "answer": None, "stream_end": "complete"}, 0.0),
        (
            {
                "choices": (
                    {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}},
                )
            },
            0,
        ),
    ],
)
def test_a_hard_failure_is_what_the_service_did_wrong(fields: dict[str, Any], failed: float) -> None:
    assert evidence([asked("i", **fields)]).candidate.values["hard_failure"] == (failed,)


def test_who_waited_in_vain_is_slow_and_not_left_out() -> None:
    control = [asked(f"k{n}", f"k{n}", "control") for n in range(20)]
    hanging = asked("c", timings={"queue_ms": 0.0, "total_ms": 60_000.0}, stream_end="client_abort_before_first_token")
    found = evidence([*control, hanging])
    assert found.candidate.values["ttft_p50"] == found.candidate.values["ttft_p90"] == (1.0,)
    assert found.candidate.values["ttft_limit"] == (1.0,)
    assert found.control.values["ttft_p90"] == (0.0,) * 20


def streamed(interaction_id: str, arm: str, ttft_ms: float = 100.0, per_token_ms: float = 10.0) -> Interaction:
    """Eleven tokens, one user a request."""
    timings = {"queue_ms": 0.0, "ttft_ms": ttft_ms, "gap_p50_ms": per_token_ms, "total_ms": ttft_ms + 10 * per_token_ms}
    usage = {"prompt_tokens": 5, "completion_tokens": 11}
    return asked(f"{arm}{interaction_id}", f"{arm}{interaction_id}", arm, timings=timings, usage=usage)


def test_slower_means_by_more_than_a_tenth() -> None:
    control = [streamed(f"{n}", "control") for n in range(20)]
    found = evidence([*control, streamed("a", "candidate", 109.0, 10.9), streamed("b", "candidate", 111.0, 11.1)])
    for metric in ("ttft_p50", "ttft_p90", "tpot_p50", "tpot_p90"):
        assert found.candidate.values[metric] == (0.0, 1.0)
        assert found.control.values[metric] == (0.0,) * 20


def test_what_came_in_one_piece_has_no_time_per_token() -> None:
    assert evidence([asked("a"), asked("b", "u2", "control")]).candidate.values["tpot_p50"] == ()


@pytest.mark.parametrize(("candidates", "judged"), [(999, False), (1000, True)])
def test_the_slowest_hundredth_is_not_judged_from_a_handful(candidates: int, judged: bool) -> None:
    control = [streamed(f"{n}", "control", 100.0 + n) for n in range(1000)]
    found = evidence([*control, *(streamed(f"{n}", "candidate", 5000.0) for n in range(candidates))])
    assert found.candidate.values["ttft_p99"] == ((1.0,) * candidates if judged else ())
    assert sum(found.control.values["ttft_p99"]) == (10 if judged else 0)


def drawn(
    number: int, user: str, share: float, arm: Arm, minutes: float = 1, session: str | None = None
) -> Interaction:
    at = SINCE + timedelta(minutes=minutes)
    return asked(f"i{number}", user, arm.value, share=share, session=session or f"s-{user}", started_at=at)


def test_every_request_is_hashed_again_at_the_share_in_force() -> None:
    arms = {f"u{n}": choose_arm(assignment_hash("salt", f"u{n}"), 0.3) for n in range(60)}
    right = [drawn(n, user, 0.3, arm) for n, (user, arm) in enumerate(arms.items()) if arm is not Arm.STABLE]
    assert evidence(right).misassigned == 0
    swapped = {Arm.CANDIDATE: Arm.CONTROL, Arm.CONTROL: Arm.CANDIDATE}
    wrong = [drawn(100 + n, i.user_key or "", 0.3, swapped[i.arm]) for n, i in enumerate(right)]
    assert evidence(wrong).misassigned == len(right)
    nobody = [
        drawn(200 + n, user, 0.01, Arm.CANDIDATE) for n, (user, arm) in enumerate(arms.items()) if arm is Arm.STABLE
    ]
    assert evidence(nobody).misassigned == len(nobody)


def test_a_conversation_keeps_the_arm_of_its_first_request() -> None:
    users = [f"u{n}" for n in range(200)]
    candidate = next(u for u in users if choose_arm(assignment_hash("salt", u), 0.1) is Arm.CANDIDATE)
    stable = next(u for u in users if choose_arm(assignment_hash("salt", u), 0.1) is Arm.STABLE)
    talk = [drawn(1, candidate, 0.1, Arm.CANDIDATE, -5, "s"), drawn(2, stable, 0.1, Arm.CANDIDATE, 5, "s")]
    assert evidence(talk).misassigned == 0
    assert evidence(talk[1:]).misassigned == 1


def test_a_long_answer_is_measured_against_the_control() -> None:
    control = [asked(f"k{n}", f"k{n}", "control") for n in range(20)]
    long = asked("c", usage={"prompt_tokens": 5, "completion_tokens": 16})
    usual = asked("d", usage={"prompt_tokens": 5, "completion_tokens": 15})
    unknown = asked("e", "u2", usage=None)
    found = evidence([*control, long, usual, unknown])
    assert found.candidate.values["output_length"] == (0.5,)


def test_the_latest_word_of_a_user_counts_and_null_withdraws() -> None:
    def vote(event: str, interaction: str, value: Any, minutes: int, kind: str = "thumb") -> Feedback:
        return a_feedback(event, interaction, kind, value, occurred_at=LATER + timedelta(minutes=minutes))

    requests = [asked("down", "u1"), asked("changed", "u2"), asked("withdrawn", "u3"), asked("rated", "u4")]
    found = evidence(
        requests,
        vote("1", "down", "down", 1),
        vote("3", "changed", "up", 2),
        vote("2", "changed", "down", 1),
        vote("4", "withdrawn", "down", 1),
        vote("5", "withdrawn", None, 2),
        vote("6", "rated", 2, 1, "rating"),
    )
    assert found.candidate.values["thumb_down"] == (1.0, 0.0, 0.0, 1.0)


def test_regenerations_edits_and_outcomes() -> None:
    requests = [asked("a", "u1"), asked("b", "u1", regenerates="a"), asked("c", "u2"), asked("d", "u3")]
    found = evidence(
        requests,
        a_feedback("1", "c", "regenerate", True),
        a_feedback("2", "c", "edit", "better"),
        a_feedback("3", "c", "outcome", "failed"),
        a_feedback("4", "d", "outcome", "passed"),
    ).candidate
    assert found.values["regeneration"] == (0.5, 1.0, 0.0)
    assert found.values["edit"] == (0.0, 1.0, 0.0)
    assert found.values["outcome_failed"] == (1.0, 0.0)


def test_refusals_are_seen_in_answers_only() -> None:
    refused = asked("a", "u1", answer="I'm sorry, but I cannot help with that request.")
    found = evidence([refused, asked("b", "u2"), asked("c", "u3", answer=None, stream_end="timeout")]).candidate
    assert found.values["refusal"] == (1.0, 0.0)


def test_only_users_first_seen_in_this_step_are_new() -> None:
    before = asked("a", "old", started_at=SINCE - timedelta(minutes=1))
    found = evidence([before, asked("b", "old"), asked("c", "new"), asked("d", "other", "control")])
    assert (found.candidate.users, found.candidate.new_users) == (2, 1)
    assert (found.control.users, found.control.new_users) == (1, 1)


requests = st.builds(
    asked,
    st.uuids().map(str),
    st.sampled_from(["u1", "u2", "u3", None]),
    st.sampled_from(["candidate", "control", "stable"]),
    status=st.sampled_from([200, 500]),
    stream_end=st.sampled_from(["complete", "timeout", "client_abort"]),
    started_at=st.sampled_from([SINCE - timedelta(minutes=1), LATER]),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(requests, max_size=12), st.randoms())
def test_order_does_not_matter_and_every_value_is_a_share(interactions: list[Interaction], random: Any) -> None:
    votes = [a_feedback(f"e{n}", i.interaction_id, "thumb", "down") for n, i in enumerate(interactions)]
    found = evidence(interactions, *votes)
    shuffled = random.sample(interactions, len(interactions))
    assert evidence(shuffled, *reversed(votes)) == found
    for arm in (found.candidate, found.control):
        assert arm.new_users <= arm.users <= arm.requests or arm.users == arm.requests == 0
        for values in arm.values.values():
            assert len(values) <= arm.users
            assert all(0.0 <= value <= 1.0 for value in values)
