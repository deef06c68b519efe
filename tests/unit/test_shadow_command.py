"""`tuneloop rollout shadow`: what a person sees of a version in shadow."""

from datetime import timedelta

from flows.shadow import summary
from pipeline.events.shadows import ShadowPair
from tests.builders import NOON, a_shadow, an_interaction

REFUSAL = "I'm sorry, but I can't help with that."


def pair(user: str, served: str, shadow: str | None, tokens: int, hours: int) -> ShadowPair:
    usage = {"prompt_tokens": 1, "completion_tokens": tokens}
    return ShadowPair(
        an_interaction(user, user_key=user, answer=served, usage=usage | {"completion_tokens": 10}),
        a_shadow(user, answer=shadow, usage=usage, started_at=NOON + timedelta(hours=hours)),
    )


def test_counts_and_likeness_are_told_and_no_text() -> None:
    pairs = [
        pair("u1", "By card.", "By card.", 10, 0),
        pair("u2", "By card.", REFUSAL, 20, 1),
        pair("u2", REFUSAL, None, 30, 2),
    ]
    told = summary(pairs)
    assert told[:4] == [
        "copies:   3 of requests of 2 users, 2026-03-10 12:00 to 2026-03-10 14:00 UTC",
        "failed:   1",
        "refused:  1, to the users 1",
        "tokens:   20 an answer, to the users 10",
    ]
    assert told[4].startswith("likeness: 0.")
    assert "card" not in "".join(told)


def test_without_any_text_there_is_no_likeness() -> None:
    assert summary([pair("u1", "By card.", None, 1, 0)])[4] == "likeness: no texts to compare"
