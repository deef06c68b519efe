"""`/v1/interactions/{id}`: what an application may know of its own interactions, read from the event log.

It is for a ticket page or a support case, not for a dashboard: few at once, in threads of their own, so that chats do
not notice.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Raw

from pipeline.errors import DataError
from pipeline.events.find import Found, find_interaction
from pipeline.gateway.auth import ApiKey
from pipeline.gateway.errors import JSON, Refused
from pipeline.gateway.exchange import Exchange
from pipeline.gateway.ids import Ids, made_at
from pipeline.gateway.line import TimingsLine

MOST_AT_ONCE = 2
MOST_WAITING = 16
_FEEDBACK = {"event_id", "kind", "value", "choice_index", "reason", "occurred_at", "received_at"}


class _Timings(TimingsLine, omit_defaults=False):
    """As in the log, with what was not measured as null."""


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Known(msgspec.Struct):
    """Of an `Interaction` what is the application's own; no hashes of users and sessions, no inner workings."""

    interaction_id: str
    business: str
    model_version: str
    arm: str
    status: int
    stream_end: str
    usage: Raw
    timings: _Timings
    started_at: str
    request: Raw
    choices: Raw


_READ = msgspec.json.Decoder(_Known)
_CHOICES = msgspec.json.Decoder(list[_Choice])


class Lookups:
    """Serves look-ups from the event log of this gateway's state folder: its own segments and those of all workers that
    share it."""

    def __init__(self, events_dir: Path, ids: Ids, clock: Callable[[], datetime]) -> None:
        self._events_dir = events_dir
        self._ids = ids
        self._clock = clock
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="lookup")
        self._running = 0

    async def serve(self, exchange: Exchange, key: ApiKey, name: bytes) -> None:
        """Answer one look-up.

        Raises:
            Refused: it is not in the log, not the key's, or too many are being looked up.
        """
        interaction_id = name.decode("ascii", "replace")
        business = next((one for one in key.businesses if self._ids.belongs(interaction_id, one)), None)
        if business is None:
            raise Refused(404, "unknown_interaction", "no such interaction")
        if self._running >= MOST_AT_ONCE + MOST_WAITING:
            refused = Refused(503, "lookups_busy", "too many look-ups at once; try again in a second")
            refused.headers = b"retry-after: 1\r\n"
            raise refused
        self._running += 1
        try:
            body = await asyncio.get_running_loop().run_in_executor(self._threads, self._find, business, interaction_id)
        except DataError as error:
            raise Refused(503, "log_unreadable", "the event log cannot be read now; try again later") from error
        finally:
            self._running -= 1
        if body is None:
            message = "not in the event log: it gets there within a second after its answer has ended"
            raise Refused(404, "not_recorded", message)
        exchange.respond(200, JSON, body)

    def _find(self, business: str, interaction_id: str) -> bytes | None:
        found = find_interaction(self._events_dir, business, interaction_id, made_at(interaction_id), self._clock())
        return None if found is None else _answer(found)


def _answer(found: Found) -> bytes:
    known = _READ.decode(found.interaction)
    return msgspec.json.encode(
        {
            **{name: getattr(known, name) for name in known.__struct_fields__},
            "finish_reasons": [choice.finish_reason for choice in _CHOICES.decode(known.choices)],
            "feedback": [event.model_dump(mode="json", include=_FEEDBACK) for event in found.feedback],
            "feedback_searched": [{"from": start, "to": end} for start, end in found.searched],
        }
    )
