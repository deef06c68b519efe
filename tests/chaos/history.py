"""What happened in a run, as the users, the runner and the stores saw it. Times are Unix seconds of one host."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

End = Literal["complete", "cut", "refused", "unreachable"]
"""`cut`: bytes of an answer came, and not its end. `refused`: a status of 400 or above. `unreachable`: no status."""


@dataclass
class Turn:
    """One request of a conversation, as its user saw it."""

    conversation: str
    gateway: str
    began: float
    ended: float = 0.0
    end: End = "unreachable"
    status: int = 0
    interaction_id: str = ""
    arm: str = ""
    model: str = ""
    engine: str = ""
    """Which one answered: its own words."""
    content: str = ""
    """Digest of the adapter's weights that the engine answered from; `base` for none."""
    detail: str = ""


@dataclass
class Vote:
    """One feedback, as its user saw it; it may have been sent several times."""

    event_id: str
    interaction_id: str
    gateway: str
    """Of the last try."""
    at: float
    accepted: bool = False
    """At least one try got 202."""


@dataclass
class Outage:
    """A time in which a part was not what it should be."""

    part: str
    what: str
    began: float
    ended: float = float("inf")
    """When it answered again; an engine: when it held the adapters in service again."""

    def overlaps(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


@dataclass
class Logged:
    """What the event log says of an interaction."""

    interaction_id: str
    arm: str
    model: str
    stream_end: str


@dataclass
class Rollout:
    """One rollout of the audit trail."""

    version: int
    began: float
    ended: float | None = None
    result: str = ""
    """`promote` or `roll_back`."""
    reason: str = ""


@dataclass
class Table:
    """Who serves, as one store says it."""

    generation: int
    stable: int | None
    candidate: int | None
    replicas: tuple[str, ...] = ()


@dataclass
class Ending:
    """What the stores say when everything is up and quiet again."""

    state: str
    """Of the control database's ledger: `steady`, `canary` or `paused`."""
    stable: int | None
    previous: int | None
    owed: int
    """Tags, reports and aliases that are not written yet."""
    published: Table
    gateways: dict[str, Table]
    aliases: dict[str, int]
    engines: dict[str, list[str]]
    """Adapters that each holds."""
    rollouts: list[Rollout]
    contents: dict[str, str]
    """Serving name of each version to the digest of the weights that were registered, and the base model's id."""


@dataclass
class History:
    """Everything that the checks need."""

    seed: int
    turns: list[Turn] = field(default_factory=list)
    votes: list[Vote] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    log: list[Logged] = field(default_factory=list)
    """Every line about an interaction, those that stand twice twice."""
    collected: dict[str, int] = field(default_factory=dict)
    """Event id of each feedback to how often `collect` finds it."""
    ending: Ending | None = None

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
