"""What in event log and snapshots is a user's: interactions, conversations, and feedback by them or about theirs.

A conversation holds what its earlier turns said. Where the user was its only known user it is theirs, with the turns in
which the client named nobody. Where others took part (an application may even give everybody the same session id), of
the others' turns those go that repeat what the user asked or was answered; the rest is the others' and stays.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.erase.erased import Kind, digest, interactions_of
from pipeline.erase.lines import FeedbackLine, InteractionLine, Tick, of_lake, of_segment, read_line
from pipeline.events.lake import alone
from pipeline.records import content_id

PASSES = 3
"""How often the log is read, unless one regenerated answer leads to the next."""


@dataclass
class Trace:
    """What is a user's. Ids are kept as hashes; only counts are told."""

    business: str
    users: frozenset[str]
    """Their user keys, as the log has them."""
    interactions: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    """Conversations that are theirs alone."""
    conversations: set[str] = field(default_factory=set)
    """All that they took part in."""
    events: set[str] = field(default_factory=set)
    own: int = 0
    """Interactions in which they are named."""
    of_others: int = 0
    """Interactions that go although they name nobody, or somebody else."""

    def digests(self) -> set[str]:
        """For the list of the erased."""
        of_users = {digest(self.business, Kind.USER, key) for key in self.users}
        return of_users | self.interactions | self.sessions | self.conversations | self.events

    def hash(self, kind: Kind, value: str) -> str:
        """What stands for it on the list."""
        return digest(self.business, kind, value)


def trace(
    events_dir: Path, snapshots_dir: Path, business: str, users: Iterable[str], tick: Tick = lambda _: None
) -> Trace:
    """Look for everything that is a user's. Nothing is changed; the log must not be compacted meanwhile.

    Args:
        snapshots_dir: of the business; a snapshot outlives the events that it was made of.
        users: user keys.
    """
    found = Trace(business, frozenset(users))
    with alone(events_dir, wait=True):
        said = _own(found, _lines(events_dir, business, tick))
        _of_conversations(found, said, _lines(events_dir, business, tick))
        while True:
            before = len(found.interactions)
            _about(found, _lines(events_dir, business, tick))
            if len(found.interactions) == before:
                break
    _of_snapshots(found, snapshots_dir)
    return found


_Lines = Iterator[tuple[InteractionLine | FeedbackLine, bytes]]


def _lines(events_dir: Path, business: str, tick: Tick) -> _Lines:
    """Every interaction and feedback of a business, parsed in part and as text; one may come twice. Shadows go with
    their interactions and need not be traced."""
    for path in sorted((events_dir / "segments").glob("*.jsonl")):
        for _, text in of_segment(path):
            line = read_line(text)
            if isinstance(line, InteractionLine | FeedbackLine) and line.business == business:
                yield line, text
        tick(path.stat().st_size)
    for path in sorted((events_dir / "lake" / business).glob("*/*.parquet")):
        for text in of_lake(path):
            line = read_line(text)
            if isinstance(line, InteractionLine | FeedbackLine):
                yield line, text
        tick(path.stat().st_size)


def _own(found: Trace, lines: _Lines) -> dict[str, set[str]]:
    """Note the user's own interactions; returns what was said in them, by session, as hashes."""
    said: dict[str, set[str]] = defaultdict(set)
    for line, text in lines:
        if isinstance(line, InteractionLine) and line.user_key in found.users:
            key = found.hash(Kind.INTERACTION, line.interaction_id)
            if key in found.interactions:
                continue
            found.interactions.add(key)
            found.own += 1
            found.conversations.add(found.hash(Kind.CONVERSATION, line.session))
            said[line.session].update(_said(json.loads(text)["interaction"]))
    return said


def _of_conversations(found: Trace, said: dict[str, set[str]], lines: _Lines) -> None:
    """Note of the user's conversations which are theirs alone, and the turns in which others repeat them."""
    unnamed: dict[str, set[str]] = defaultdict(set)
    shared: set[str] = set()
    for line, text in lines:
        if not isinstance(line, InteractionLine) or line.session not in said or line.user_key in found.users:
            continue
        key = found.hash(Kind.INTERACTION, line.interaction_id)
        if line.user_key is not None:
            shared.add(line.session)
        if not said[line.session].isdisjoint(map(content_id, _messages(json.loads(text)["interaction"]))):
            _add_others(found, key)
        elif line.user_key is None:
            unnamed[line.session].add(key)
    for session in said.keys() - shared:
        found.sessions.add(found.hash(Kind.SESSION, session))
        for key in unnamed[session]:
            _add_others(found, key)


def _about(found: Trace, lines: _Lines) -> None:
    """Note feedback by the user or about what goes, and new tries of answers that go."""
    for line, _ in lines:
        if isinstance(line, InteractionLine):
            if line.regenerates and found.hash(Kind.INTERACTION, line.regenerates) in found.interactions:
                _add_others(found, found.hash(Kind.INTERACTION, line.interaction_id))
        elif line.user_key in found.users or any(
            found.hash(Kind.INTERACTION, name) in found.interactions for name in interactions_of(line)
        ):
            found.events.add(found.hash(Kind.EVENT, line.event_id))


def _add_others(found: Trace, key: str) -> None:
    if key not in found.interactions:
        found.interactions.add(key)
        found.of_others += 1


def _said(interaction: dict[str, Any]) -> set[str]:
    """Hashes of the last question of an interaction and of the answers to it."""
    asked = [message for message in _messages(interaction) if not _is_answer(message)][-1:]
    answers = [_bare(choice.get("message")) for choice in interaction.get("choices") or ()]
    return {content_id(message) for message in [*asked, *answers] if message}


def _messages(interaction: dict[str, Any]) -> list[Any]:
    """What was said in a request, whoever said it; instructions of the application's own are left out."""
    request = interaction.get("request")
    messages = request.get("messages") if isinstance(request, dict) else None
    if not isinstance(messages, list):
        prompt = request.get("prompt") if isinstance(request, dict) else None
        return [] if prompt is None else [prompt]
    said = [_bare(message) for message in messages]
    return [message for message in said if message and message[0] not in ("system", "developer")]


def _bare(message: Any) -> list[Any]:
    """Role and content, by which a message is known again in a later turn; empty when it has none."""
    if not isinstance(message, dict) or not message.get("content"):
        return []
    return [message.get("role"), message["content"]]


def _is_answer(message: Any) -> bool:
    return isinstance(message, list) and message[:1] == ["assistant"]


def _of_snapshots(found: Trace, snapshots_dir: Path) -> None:
    """Note conversations that only snapshots still know: of rows that are the user's alone, and not of those on which
    the user had an opinion."""
    for path in sorted(snapshots_dir.glob("[!.]*/*_*.parquet")):  # not what a killed build left behind
        for source in _sources(path):
            if found.users.issuperset(source["user_keys"]) and source["user_keys"]:
                found.conversations.add(found.hash(Kind.CONVERSATION, source["session"]))


def _sources(path: Path) -> Sequence[Any]:
    table = pq.ParquetFile(path).read(columns=["source"], use_threads=False)
    return [json.loads(text) for text in table.column("source").to_pylist()]
