"""What users finally said is the same in whatever order, and however often, their events arrive."""

import json
from datetime import datetime, timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.collect.join import join_feedback
from pipeline.records import Feedback, FeedbackKind, Interaction
from tests.builders import NOON, a_feedback, an_interaction

MINUTES = st.integers(0, 3).map(lambda n: NOON + timedelta(minutes=n))
IDS = st.sampled_from(["i1", "i2", "i3", "i4"])
FEEDBACK = st.builds(
    lambda event_id, interaction_id, kind, value, user, at, index: a_feedback(
        event_id, interaction_id, kind, value, user_key=user, occurred_at=at, choice_index=index
    ),
    st.sampled_from([f"e{n}" for n in range(6)]),
    st.sampled_from(["i1", "i2", "i3", "i4", "gone"]),
    st.sampled_from(FeedbackKind),
    st.sampled_from(["up", "down", None, "i2", "i3"]),
    st.sampled_from(["u1", "u2", None]),
    MINUTES,
    st.integers(0, 1),
)
INTERACTIONS = st.lists(
    st.builds(
        lambda i, prompt, session, known, at, answer, regenerates: an_interaction(
            i,
            prompt=prompt,
            session=session,
            session_known=known,
            started_at=at,
            answer=answer,
            regenerates=regenerates,
        ),
        IDS,
        st.sampled_from(["How?", "Why?"]),
        st.sampled_from(["s1", "s2"]),
        st.booleans(),
        MINUTES,
        st.sampled_from(["So.", None]),
        st.none() | IDS,
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(st.data(), INTERACTIONS, st.lists(FEEDBACK, max_size=8))
def test_order_and_redelivery_change_nothing(
    data: st.DataObject, interactions: list[Interaction], feedback: list[Feedback]
) -> None:
    once = join_feedback(interactions, feedback)
    again = join_feedback(
        data.draw(st.permutations(interactions)) + interactions[:2], data.draw(st.permutations(feedback)) + feedback
    )
    assert again == once


@settings(max_examples=40, deadline=None)
@given(INTERACTIONS, st.lists(FEEDBACK, max_size=8))
def test_each_event_is_in_one_signal_and_the_latest_speaks(
    interactions: list[Interaction], feedback: list[Feedback]
) -> None:
    rated = join_feedback(interactions, feedback)
    assert sorted(r.interaction.interaction_id for r in rated) == sorted({i.interaction_id for i in interactions})
    events = [event_id for r in rated for signal in r.signals for event_id in signal.event_ids]
    assert len(events) == len(set(events))
    for r in rated:
        keys = [(s.user_key, s.kind, s.choice_index) for s in r.signals]
        assert len(keys) == len(set(keys))
        for signal in r.signals:
            assert any(
                (f.value, f.occurred_at, f.event_id) == (signal.value, signal.occurred_at, signal.event_ids[-1])
                for f in feedback
            )


@settings(max_examples=40, deadline=None)
@given(INTERACTIONS)
def test_who_replaces_came_later_and_was_answered(interactions: list[Interaction]) -> None:
    rated = {r.interaction.interaction_id: r for r in join_feedback(interactions, [])}
    for r in rated.values():
        if r.replaced_by is not None:
            new = rated[r.replaced_by].interaction
            assert (new.started_at, new.interaction_id) > (r.interaction.started_at, r.interaction.interaction_id)
            assert new.choices


def case_feedback(path: Path) -> list[Feedback]:
    """The case's events in our words: `thumb_removed` is a thumb with the value null."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        at = datetime.fromisoformat(row["ts"])
        value, user = row.get("value"), row["user"]
        events.append(a_feedback(row["event_id"], row["trace_id"], "thumb", value, user_key=user, occurred_at=at))
    return events


def test_a_thumb_flipped_withdrawn_and_delivered_twice_out_of_order(shared: Path) -> None:
    feedback = case_feedback(shared / "data/cases/events/D-12_thumb_flip_out_of_order.jsonl")
    interactions = [an_interaction("t9"), an_interaction("t10", session="s2")]
    for arrival in (feedback, feedback[::-1], feedback + feedback, sorted(feedback, key=lambda f: f.event_id)):
        t9, t10 = sorted(join_feedback(interactions, arrival), key=lambda r: -len(r.signals))
        assert [(s.user_key, s.value, s.event_ids) for s in t9.signals] == [
            ("u1", "down", ("e1", "e3")),
            ("u2", "up", ("e4",)),
        ]
        assert [(s.value, s.event_ids) for s in t10.signals] == [(None, ("e2", "e5"))]


def test_a_vote_without_a_user_is_the_askers() -> None:
    votes = [
        a_feedback("e1", value="up", user_key=None),
        a_feedback("e2", value="down", user_key="u1", occurred_at=NOON + timedelta(minutes=1)),
    ]
    (rated,) = join_feedback([an_interaction(user_key="u1")], votes)
    assert [(s.user_key, s.value) for s in rated.signals] == [("u1", "down")]


def at(minute: int, interaction_id: str, **fields: object) -> Interaction:
    return an_interaction(interaction_id, started_at=NOON + timedelta(minutes=minute), **fields)


def replaced(interactions: list[Interaction], feedback: list[Feedback] | None = None) -> dict[str, str]:
    rated = join_feedback(interactions, feedback or [])
    return {r.interaction.interaction_id: r.replaced_by for r in rated if r.replaced_by}


def test_regenerations_are_seen_by_header_by_feedback_and_by_an_identical_prompt() -> None:
    apart = {"session": "s2", "session_known": False}
    assert replaced([at(0, "a"), at(1, "b", regenerates="a", **apart)]) == {"a": "b"}
    assert replaced([at(0, "a"), at(1, "b", **apart)], [a_feedback("e", "a", "regenerate", "b")]) == {"a": "b"}
    assert replaced([at(0, "a"), at(1, "b")]) == {"a": "b"}


def test_strangers_and_other_prompts_regenerate_nothing() -> None:
    assert replaced([at(0, "a", session_known=False), at(1, "b", session_known=False)]) == {}
    assert replaced([at(0, "a"), at(1, "b", session="s2")]) == {}
    assert replaced([at(0, "a"), at(1, "b", prompt="Why?")]) == {}
    assert replaced([at(0, "a")], [a_feedback("e", "a", "regenerate", True)]) == {}
    assert replaced([at(0, "a", regenerates="gone")]) == {}


def test_each_try_is_replaced_by_the_next_one_that_came() -> None:
    tries = [at(0, "a"), at(1, "b", regenerates="a"), at(2, "failed", answer=None), at(3, "c", regenerates="a")]
    assert replaced(tries) == {"a": "b", "b": "c", "failed": "c"}
    assert replaced([at(0, "a"), at(1, "failed", answer=None, status=503)]) == {}
