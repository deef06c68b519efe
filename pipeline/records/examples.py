"""Training rows and the snapshot that holds them."""

from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic import AwareDatetime, JsonValue

from pipeline.records.base import BusinessKey, Message, Record, Sha256
from pipeline.records.events import DropReason, FeedbackKind


class Source(Record):
    """Where an example comes from."""

    interaction_ids: tuple[str, ...]
    event_ids: tuple[str, ...]
    model_versions: tuple[str, ...]
    user_keys: tuple[str, ...]
    session: str
    at: AwareDatetime
    weight: float = 1.0


class SftExample(Record):
    """A target to imitate, in TRL's prompt-completion form."""

    prompt: tuple[Message, ...]
    completion: tuple[Message, ...]
    tools: tuple[dict[str, JsonValue], ...] = ()
    source: Source


class PreferenceExample(Record):
    """Two answers to the same prompt, the better one first, in TRL's preference form."""

    prompt: tuple[Message, ...]
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    tools: tuple[dict[str, JsonValue], ...] = ()
    source: Source


class UnpairedExample(Record):
    """An answer that was liked or not, in TRL's unpaired preference form."""

    prompt: tuple[Message, ...]
    completion: tuple[Message, ...]
    label: bool
    tools: tuple[dict[str, JsonValue], ...] = ()
    source: Source


Example: TypeAlias = SftExample | PreferenceExample | UnpairedExample


class Split(StrEnum):
    """Which side of the split a row stands on."""

    TRAIN = "train"
    HELD_OUT = "held_out"  # users who are never trained on: the gate's main set
    RECENT = "recent"  # the newest window of the other users


class SnapshotManifest(Record):
    """What an immutable dataset holds. `snapshot_id` is a hash over its canonical rows."""

    snapshot_id: Sha256
    business: BusinessKey
    window_start: AwareDatetime
    window_end: AwareDatetime
    rows: dict[Split, dict[Literal["sft", "preference", "unpaired"], int]]
    interactions: int
    """All interactions in the window: `sources + sum(dropped.values())`."""
    sources: int
    """Interactions that at least one example comes from."""
    dropped: dict[DropReason, int]
    pii_counts: dict[str, int]
    signal_counts: dict[FeedbackKind, int]
    praise: dict[FeedbackKind, int] = {}
    """Signals that say the answer is good."""
    blame: dict[FeedbackKind, int] = {}
    """Signals that say it is bad."""
    reasons: dict[str, tuple[str, ...]] = {}
    """Reasons that users gave, without personal data, to the user keys of all who gave the same one. Rare ones are left
    out, so that each stands for several people; it goes when an erasure leaves too few of them. No page shows who."""
    users: int
    split_by: Literal["user", "session"]


class Redaction(Record):
    """What an erasure took out of a snapshot, which keeps its id. It names nobody."""

    erasure_id: Sha256
    at: AwareDatetime
    rows: dict[Split, int]
    """Rows that went, by the side on which they stood."""
    users: tuple[str, ...] = ()
    """Hashes of all users that these rows came from: a row of two users can be shown to have been there for each."""
