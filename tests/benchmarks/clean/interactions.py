"""An event log for the benchmark: what gateways would have written in two weeks of one business.

Eight of ten interactions were judged: most by a thumb, some by an edit or an outcome. Every fourth goes on with the
conversation before it, every tenth repeats an earlier question and answer, and every thirtieth asks for another answer.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipeline.records import Choice, Feedback, Interaction, Message, Timings, canonical_json, content_id
from tests.benchmarks.clean.talk import Speech

DUE = datetime(2026, 3, 15, 3, tzinfo=UTC)
"""When the night is due that takes all of it."""
_DAYS = 13.9
_USERS_EACH = 20
"""Interactions of one user, on average."""


def write_log(events_dir: Path, business: str, speech: Speech, count: int, seed: int) -> None:
    """Closed segments, one an hour, as one gateway worker writes them; added to those of other businesses."""
    folder = events_dir / "segments"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    hour, file = "", None
    for at, line in _lines(business, speech, count, random.Random(seed)):
        if f"{at:%Y%m%dT%H}" != hour:
            if file is not None:
                file.close()
            hour = f"{at:%Y%m%dT%H}"
            file = (folder / f"bench-{hour}.jsonl").open("a", encoding="utf-8")
        assert file is not None
        file.write(line + "\n")
    if file is not None:
        file.close()


def _lines(business: str, speech: Speech, count: int, chance: random.Random) -> Iterator[tuple[datetime, str]]:
    start = DUE - timedelta(days=_DAYS)
    turns: list[tuple[str, str]] = []
    last: Interaction | None = None
    for number in range(count):
        at = start + timedelta(days=_DAYS) * number / count
        last = _interaction(business, speech, number, at, last, turns, max(10, count // _USERS_EACH), chance)
        yield at, canonical_json({"interaction": last.model_dump(mode="json")})
        if chance.random() < 0.8:
            said = _feedback(last, speech, at + timedelta(seconds=20), chance)
            yield at, canonical_json({"feedback": said.model_dump(mode="json")})


def _interaction(
    business: str,
    speech: Speech,
    number: int,
    at: datetime,
    last: Interaction | None,
    turns: list[tuple[str, str]],
    users: int,
    chance: random.Random,
) -> Interaction:
    kind = chance.random()
    user = f"user-{chance.randrange(users)}"
    session, before, regenerates = f"session-{number}", [_message("system", speech.system)], None
    if last is not None and kind < 0.28:
        assert last.user_key is not None
        user, session = last.user_key, last.session
        before = [*_messages(last), last.choices[0].message]
    if last is not None and kind < 0.03:
        regenerates, before = last.interaction_id, _messages(last)[:-1]
        asked, answer = str(_messages(last)[-1]["content"]), speech.answer(chance)
    elif turns and kind > 0.9:
        asked, answer = chance.choice(turns)
    else:
        asked, answer = speech.question(chance), speech.answer(chance)
    turns.append((asked, answer))
    messages = [*before[-6:], _message("user", asked)]
    return Interaction(
        interaction_id=f"{business}-{number:08}",
        business=business,
        session=session,
        session_known=True,
        user_key=user,
        user_group="g00",
        arm="stable",
        share=0.0,
        rollout_salt="",
        model_version="base",
        adapter=None,
        base_model="base",
        prompt_hash=content_id(messages),
        request={"model": business, "messages": messages, "max_tokens": 512},
        choices=(Choice(index=0, message=_message("assistant", answer), finish_reason="stop"),),
        usage=None,
        timings=Timings(queue_ms=0.1, ttft_ms=80.0, total_ms=900.0),
        status=200,
        stream_end="complete",
        client="bench",
        regenerates=regenerates,
        started_at=at,
    )


def _feedback(interaction: Interaction, speech: Speech, at: datetime, chance: random.Random) -> Feedback:
    kind = chance.random()
    answer = str(interaction.choices[0].message["content"])
    said: tuple[str, str] = ("thumb", "up")
    if kind < 0.2:
        said = ("edit", speech.edited(answer, chance))
    elif kind < 0.45:
        said = ("thumb", "down")
    elif kind < 0.5:
        said = ("outcome", chance.choice(["passed", "failed"]))
    return Feedback(
        event_id=f"event-{interaction.interaction_id}",
        interaction_id=interaction.interaction_id,
        business=interaction.business,
        kind=said[0],
        value=said[1],
        user_key=interaction.user_key,
        occurred_at=at,
        received_at=at,
    )


def _messages(interaction: Interaction) -> list[Message]:
    messages = interaction.request["messages"]
    assert isinstance(messages, list)
    return [message for message in messages if isinstance(message, dict)]


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
