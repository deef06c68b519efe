"""Each interaction comes out as one clean record or one reason, whatever comes in."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.pii import PatternDetector, Span
from pipeline.clean.steps import clean_records
from pipeline.clean.text import comparison_key
from pipeline.records import DropReason, RatedInteraction
from tests.builders import NOON, a_rated, a_signal, an_interaction

patterns = PatternDetector()


def reasons(*rated: RatedInteraction, golden: frozenset[str] = frozenset()) -> dict[str, DropReason | None]:
    records, dropped = clean_records(rated, patterns, golden)
    return {record.interaction_id: None for record in records} | {drop.interaction_id: drop.reason for drop in dropped}


def test_what_nobody_spoke_about_goes_first() -> None:
    silent = a_rated(an_interaction("i1", status=500))
    replaced = a_rated(an_interaction("i2"), replaced_by="i3")
    replacing = a_rated(an_interaction("i3", regenerates="i2"))
    assert reasons(silent, replaced, replacing) == {"i1": DropReason.NO_FEEDBACK, "i2": None, "i3": None}


def test_the_record_holds_what_was_said_without_personal_data() -> None:
    interaction = an_interaction(prompt="我是13912345678", answer="您好 13912345678")
    edit = a_signal("edit", "您好，139 1234 5678", reason="写错 13912345678")
    late = a_signal("comment", "call a@b.com")
    (record,), dropped = clean_records([a_rated(interaction, edit, late)], patterns, frozenset())
    assert not dropped
    assert record.messages == ({"role": "user", "content": "我是<PHONE_1>"},)
    assert record.answer == {"role": "assistant", "content": "您好 <PHONE_1>"}
    assert record.edited == "您好，<PHONE_1>"
    assert [s.value for s in record.signals] == ["您好，<PHONE_1>", "call <EMAIL_1>"]
    assert record.signals[0].reason == "写错 <PHONE_1>"
    assert record.pii_counts == {"EMAIL": 1, "PHONE": 1}


def test_the_latest_edit_counts() -> None:
    old = a_signal("edit", "old")
    new = a_signal("edit", "new", user_key="u2", occurred_at=NOON + timedelta(hours=1))
    (record,), _ = clean_records([a_rated(an_interaction(), new, old)], patterns, frozenset())
    assert record.edited == "new"


def test_placeholders_run_through_a_session() -> None:
    one = an_interaction("i1", prompt="13912345678")
    two = an_interaction("i2", prompt="13800138000 or 13912345678", started_at=NOON + timedelta(minutes=1))
    other = an_interaction("i3", prompt="13800138000", session="s2")
    records, _ = clean_records([a_rated(i, a_signal()) for i in (two, other, one)], patterns, frozenset())
    prompts = {record.interaction_id: record.messages[0]["content"] for record in records}
    assert prompts == {"i1": "<PHONE_1>", "i2": "<PHONE_2> or <PHONE_1>", "i3": "<PHONE_1>"}


def test_ids_of_the_envelope_are_never_scanned() -> None:
    id_like = "13912345678"
    interaction = an_interaction(id_like, session="13800138000", user_key="13912345679")
    signal = a_signal("choice", {"over": "13912345670"}, event_ids=("13912345671",))
    (record,), _ = clean_records([a_rated(interaction, signal)], patterns, frozenset())
    assert (record.interaction_id, record.session, record.user_key) == (id_like, "13800138000", "13912345679")
    assert record.signals == (signal,)


def test_a_failing_scrub_drops_that_record_and_no_other() -> None:
    def detect(texts: Sequence[str]) -> list[list[Span]]:
        if any("bomb" in text for text in texts):
            raise RuntimeError("no")
        return patterns(texts)

    rated = [a_rated(an_interaction("i1", prompt="bomb"), a_signal()), a_rated(an_interaction("i2"), a_signal())]
    records, dropped = clean_records(rated, detect, frozenset())
    assert [record.interaction_id for record in records] == ["i2"]
    assert [(drop.interaction_id, drop.reason) for drop in dropped] == [("i1", DropReason.SCRUB_FAILED)]


def test_golden_questions_are_never_trained_on() -> None:
    golden = frozenset({comparison_key("How do I get an invoice?")})
    asked = a_rated(an_interaction(prompt="how do I get an invoice ？"), a_signal())
    assert reasons(asked, golden=golden) == {"i1": DropReason.GOLDEN}


def test_the_rated_one_of_several_answers() -> None:
    choices = tuple({"index": n, "message": {"content": f"A{n}"}, "finish_reason": "stop"} for n in range(2))
    interaction = an_interaction(choices=choices)
    up = a_signal("thumb", "up", choice_index=0)
    edit = a_signal("edit", "B", choice_index=1)
    (record,), _ = clean_records([a_rated(interaction, up, edit, a_signal("abort", True))], patterns, frozenset())
    assert record.answer == {"role": "assistant", "content": "A1"}
    assert {signal.kind.value for signal in record.signals} == {"edit", "abort"}
    assert reasons(a_rated(interaction, a_signal(choice_index=7))) == {"i1": DropReason.EMPTY_SIDE}


def test_lone_surrogates_are_repaired() -> None:
    choices = ({"index": 0, "message": {"role": "assistant", "content": "\ud83c\udf78 干杯"}},)
    interaction = an_interaction(prompt="x\udb8dy").model_copy()
    (record,), _ = clean_records([a_rated(interaction, a_signal())], patterns, frozenset())
    assert record.messages[0]["content"] == "x\ufffdy"
    (cheers,), _ = clean_records([a_rated(an_interaction(choices=choices), a_signal())], patterns, frozenset())
    assert cheers.answer["content"] == "🍸 干杯"


def test_a_prompt_shared_by_many_users_keeps_its_names() -> None:
    def detect(texts: Sequence[str]) -> list[list[Span]]:
        return [[Span(text.index("Ann"), text.index("Ann") + 3, "PERSON")] if "Ann" in text else [] for text in texts]

    def asked(system: str, user: int) -> RatedInteraction:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "Ann?"}]
        named: dict[str, Any] = {"user_key": f"u{user}", "session": f"s{user}", "request": {"messages": messages}}
        return a_rated(an_interaction(f"i{user}", **named), a_signal())

    rated = [asked("You are Ann.", n) for n in range(3)] + [asked("The user is Ann.", 3)]
    records, _ = clean_records(rated, detect, frozenset())
    systems = [record.messages[0]["content"] for record in records]
    assert systems == ["You are Ann."] * 3 + ["The user is <PERSON_1>."]
    assert all(record.messages[1]["content"] == "<PERSON_1>?" for record in records)


signals = st.sampled_from(
    [a_signal(), a_signal("thumb", "down"), a_signal("edit", "So, 13912345678."), a_signal("edit", " ")]
)
interactions = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from([200, 503]),
        "stream_end": st.sampled_from(["complete", "client_abort"]),
        "answer": st.sampled_from(["Yes.", "", "I'm sorry, but I can't assist with that.", "13912345678", None]),
        "request": st.sampled_from([{}, {"messages": []}, {"messages": [{"role": "user", "content": "a@b.com"}]}]),
        "session": st.sampled_from(["s1", "s2"]),
        "regenerates": st.sampled_from([None, "i0"]),
    },
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(interactions, st.lists(signals, max_size=2)), max_size=6), st.randoms())
def test_sums_match_in_any_order(drawn: list[tuple[dict[str, Any], list[Any]]], random: Any) -> None:
    rated = [a_rated(an_interaction(f"i{at}", **fields), *said) for at, (fields, said) in enumerate(drawn)]
    records, dropped = clean_records(rated, patterns, frozenset())
    assert sorted([r.interaction_id for r in records] + [d.interaction_id for d in dropped]) == sorted(
        r.interaction.interaction_id for r in rated
    )
    assert all("139123" not in repr(record) and "a@b.com" not in repr(record) for record in records)
    random.shuffle(rated)
    again, dropped_again = clean_records(rated, patterns, frozenset())
    assert again == records
    assert sorted(map(repr, dropped_again)) == sorted(map(repr, dropped))
