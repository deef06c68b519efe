"""What is left when everything is up and quiet again: reads the stores, decides nothing."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from pipeline.events.read import read_events
from pipeline.records import Target
from pipeline.rollout.ledger import AuditEntry
from pipeline.rollout.state import previous_of, stable_of
from tests.chaos.history import Ending, Logged, Rollout, Table
from tests.chaos.schedule import ENGINES, GATEWAYS
from tests.chaos.stack import BUSINESS, Stack

_WISHES = ("promote", "rollback")
_LOOK_S = 0.5


def wait_until_quiet(stack: Stack, limit_s: float) -> Ending:
    """The end, as soon as rollouts have ended, wishes are dealt with and everybody has the newest routes; or what
    stands after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while True:
        ending = look(stack)
        if _is_quiet(ending) or time.monotonic() > deadline:
            return ending
        time.sleep(_LOOK_S)


def look(stack: Stack) -> Ending:
    """What the stores say now."""
    stored = stack.store.read(BUSINESS)
    published = stack.store.routes()
    route = next(route for route in published.routes if route.business == BUSINESS)
    return Ending(
        state=stored.state.kind,
        stable=stable_of(stored.state),
        previous=previous_of(stored.state),
        owed=len(stored.ledger.owed),
        published=_table(published.generation, route.stable, route.candidate),
        gateways={name: _served_by(stack, name) for name in GATEWAYS},
        aliases=stack.registry.aliases(BUSINESS),
        engines={name: stack.held(name) for name in ENGINES},
        rollouts=rollouts_of(stack.store.history(BUSINESS, 10_000)),
        contents=dict(stack.contents),
    )


def rollouts_of(trail: tuple[AuditEntry, ...]) -> list[Rollout]:
    """Each `start` of the audit trail with what ended it."""
    found: list[Rollout] = []
    for entry in trail:
        if entry.action == "start":
            found.append(Rollout(int(str(entry.detail["version"])), entry.at.timestamp()))
        elif entry.action in ("promote", "roll_back") and found and found[-1].ended is None:
            last = found[-1]
            last.ended, last.result, last.reason = entry.at.timestamp(), entry.action, str(entry.detail["reason"])
    return found


def logged(stack: Stack) -> list[Logged]:
    """Every whole line about an interaction, as it stands in the segments."""
    found = [line["interaction"] for line in _lines(stack) if "interaction" in line]
    return [Logged(one["interaction_id"], one["arm"], one["model_version"], one["stream_end"]) for one in found]


def collected(stack: Stack, began: datetime) -> dict[str, int]:
    """Event ids as a night would find them, each with how often; those whose interaction died with its gateway are
    taken from the segments, where they wait for it."""
    end = datetime.now(UTC) + timedelta(minutes=1)
    events = read_events(stack.state_dir / "events", BUSINESS, began - timedelta(minutes=1), end)
    known = {interaction.interaction_id for interaction in events.interactions}
    said = [line["feedback"] for line in _lines(stack) if "feedback" in line]
    waiting = {one["event_id"] for one in said if one["interaction_id"] not in known}
    return dict(Counter([*(event.event_id for event in events.feedback), *waiting]))


def _lines(stack: Stack) -> Iterator[dict[str, Any]]:
    for file in sorted((stack.state_dir / "events" / "segments").glob("*.jsonl")):
        for line in file.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)


def _is_quiet(ending: Ending) -> bool:
    tables = ending.gateways.values()
    return (
        ending.state == "steady"
        and not ending.owed
        and not any(wish in ending.aliases for wish in _WISHES)
        and ending.aliases.get("champion") == ending.stable
        and ending.aliases.get("previous") == ending.previous
        and all(table == ending.published for table in tables)
        and len(ending.published.replicas) == len(ENGINES)
    )


def _served_by(stack: Stack, gateway: str) -> Table:
    try:
        served = stack.routes(gateway)
    except httpx.HTTPError:
        return Table(-1, None, None)
    route = served["route"]
    candidate = Target.model_validate(route["candidate"]) if route["candidate"] else None
    return _table(served["generation"], Target.model_validate(route["stable"]), candidate)


def _table(generation: int, stable: Target, candidate: Target | None) -> Table:
    return Table(generation, stable.version, candidate.version if candidate else None, stable.replicas)
