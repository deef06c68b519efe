"""Who and what is erased, as hashes: enough to know it again when it comes back, useless to anybody else.

User keys and session keys are keyed hashes already. What is kept of an erased user is a hash of those, so that the list
of the erased, a backup and an old log together still name nobody.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class Kind(StrEnum):
    """What a hash stands for."""

    USER = "user"  # everything that names this user goes, also what comes later
    SESSION = "session"  # a conversation of the user alone: goes whole, also what comes later
    CONVERSATION = "conversation"  # one that the user took part in: its rows go from snapshots
    INTERACTION = "interaction"  # goes with all feedback for it, also what comes later
    EVENT = "event"  # feedback that went


class AnInteraction(Protocol):
    """Of an interaction what tells whose it is: the record, or a line of the log read in part."""

    @property
    def interaction_id(self) -> str: ...
    @property
    def business(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def user_key(self) -> str | None: ...
    @property
    def regenerates(self) -> str | None: ...


class AFeedback(Protocol):
    """Of a feedback what tells whose it is, and what about."""

    @property
    def event_id(self) -> str: ...
    @property
    def interaction_id(self) -> str: ...
    @property
    def business(self) -> str: ...
    @property
    def user_key(self) -> str | None: ...
    @property
    def value(self) -> Any: ...


class ASource(Protocol):
    """Where a training row comes from."""

    @property
    def interaction_ids(self) -> tuple[str, ...]: ...
    @property
    def event_ids(self) -> tuple[str, ...]: ...
    @property
    def user_keys(self) -> tuple[str, ...]: ...
    @property
    def session(self) -> str: ...


def digest(business: str, kind: Kind, value: str) -> str:
    """32 hex digits that stand for a user, a session or an id of a business."""
    text = f"{business}\n{kind}\n{value}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


@dataclass(frozen=True)
class Erased:
    """Everything that is erased, of one business or of all."""

    digests: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.digests)

    def has(self, business: str, kind: Kind, value: str | None) -> bool:
        """Whether this very thing is erased."""
        return value is not None and digest(business, kind, value) in self.digests

    def has_any(self, business: str, kind: Kind, values: Iterable[str]) -> bool:
        """Whether one of them is."""
        return any(self.has(business, kind, value) for value in values)

    def interaction(self, one: AnInteraction) -> bool:
        """Whether an interaction goes: its own, its user, its conversation, or what it was to replace, is erased."""
        return (
            self.has(one.business, Kind.USER, one.user_key)
            or self.has(one.business, Kind.SESSION, one.session)
            or self.has_any(one.business, Kind.INTERACTION, filter(None, (one.interaction_id, one.regenerates)))
        )

    def feedback(self, one: AFeedback) -> bool:
        """Whether a feedback goes: the user gave it, or it is about, or names, an interaction that goes."""
        return (
            self.has(one.business, Kind.USER, one.user_key)
            or self.has(one.business, Kind.EVENT, one.event_id)
            or self.has_any(one.business, Kind.INTERACTION, interactions_of(one))
        )

    def row(self, business: str, source: ASource) -> bool:
        """Whether a row of a snapshot goes."""
        return (
            self.has_any(business, Kind.USER, source.user_keys)
            or self.has_any(business, Kind.INTERACTION, source.interaction_ids)
            or self.has_any(business, Kind.EVENT, source.event_ids)
            or self.has(business, Kind.CONVERSATION, source.session)
        )


_LONGEST_ID = 200


def interactions_of(feedback: AFeedback) -> list[str]:
    """The interaction that a feedback is about, and the one that its value names: a new try, or one not chosen."""
    value = feedback.value.get("over") if isinstance(feedback.value, dict) else feedback.value
    named = [value] if isinstance(value, str) and len(value) <= _LONGEST_ID else []
    return [feedback.interaction_id, *named]
