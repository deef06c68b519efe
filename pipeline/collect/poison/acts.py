"""Signals as the screen looks at them, suspicions about them, and the texts behind them in a form for comparing."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pipeline.clean.text import last_user_text, message_text, normalise
from pipeline.records import (
    FeedbackKind,
    Finding,
    Interaction,
    Message,
    QuarantineReason,
    RatedInteraction,
    Signal,
    content_id,
)

_OF_PEOPLE = frozenset({FeedbackKind.THUMB, FeedbackKind.RATING, FeedbackKind.EDIT, FeedbackKind.CHOICE})
_OF_SYSTEMS = frozenset({FeedbackKind.OUTCOME, FeedbackKind.ABORT})

_SHARED = 0.5
_RUN = 5
FEW_PEERS = 10
"""With fewer users there is nobody to compare one with."""

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Act:
    """A vote, an edit or a choice of a person."""

    interaction: Interaction
    signal: Signal
    actor: str | None
    """The user; of an unknown user the conversation, if that is known; else None."""

    @property
    def event_id(self) -> str:
        return self.signal.event_ids[-1]

    @property
    def at(self) -> datetime:
        return self.signal.occurred_at

    @property
    def question(self) -> str:
        """The last thing that the user said."""
        return last_user_text(messages_of(self.interaction))

    @property
    def answer(self) -> str:
        """The answer that the signal is about; "" where there is none."""
        choices = self.interaction.choices
        return next((message_text(c.message) for c in choices if c.index == self.signal.choice_index), "")


@dataclass(frozen=True)
class Suspicion:
    """Acts that look like poison together."""

    reason: QuarantineReason
    evidence: str
    acts: tuple[Act, ...]


def acts_of(rated: Sequence[RatedInteraction]) -> list[Act]:
    """What people did and did not take back, in order of time."""
    acts = [
        Act(one.interaction, signal, _actor(one.interaction, signal))
        for one in rated
        for signal in one.signals
        if signal.kind in _OF_PEOPLE and signal.value is not None
    ]
    return sorted(acts, key=lambda act: (act.at, act.event_id))


def as_findings(suspicions: Iterable[Suspicion], rated: Sequence[RatedInteraction]) -> list[Finding]:
    """Findings in canonical order. What the same user said beside an act, on the same interaction, is held with it."""
    beside: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for one in rated:
        for signal in one.signals:
            if signal.kind not in _OF_SYSTEMS:
                beside[one.interaction.interaction_id, signal.user_key].append(signal.event_ids[-1])
    findings = []
    for suspicion in suspicions:
        places = {(act.interaction.interaction_id, act.signal.user_key) for act in suspicion.acts}
        finding = Finding(
            business=suspicion.acts[0].interaction.business,
            reason=suspicion.reason,
            evidence=suspicion.evidence,
            user_keys=tuple(sorted({user for _, user in places if user is not None})),
            interaction_ids=tuple(sorted({interaction_id for interaction_id, _ in places})),
            event_ids=tuple(sorted({event_id for place in places for event_id in beside[place]})),
        )
        findings.append(finding)
    return sorted(findings, key=lambda finding: finding.finding_id)


def by_actor(acts: Iterable[Act]) -> dict[str, list[Act]]:
    """The acts of each known person, in their order."""
    grouped: dict[str, list[Act]] = defaultdict(list)
    for act in acts:
        if act.actor is not None:
            grouped[act.actor].append(act)
    return grouped


def messages_of(interaction: Interaction) -> list[Message]:
    """The messages of a request; what is no message is left out."""
    messages = interaction.request.get("messages")
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []


def count_by(pairs: Iterable[tuple[_Key, int]]) -> Mapping[_Key, Counter[int]]:
    """Votes by key: how often each sign."""
    counts: dict[_Key, Counter[int]] = defaultdict(Counter)
    for key, sign in pairs:
        counts[key][sign] += 1
    return counts


def flat(text: str) -> str:
    """Without width, case and spaces: what people copy stays the same however they lay it out."""
    return normalise(text).casefold().replace(" ", "")


def runs_of(text: str) -> frozenset[str]:
    """A text's runs of five characters."""
    return frozenset(text[at : at + _RUN] for at in range(max(1, len(text) - _RUN + 1)))


def alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two texts share half of their runs."""
    shared = len(one & other)
    return shared >= _SHARED * (len(one) + len(other) - shared)


def name_of(text: str) -> str:
    """Eight hex digits that stand for a text that must not be shown."""
    return content_id(text)[:8]


def how_rare(chance: float) -> str:
    """A chance in words."""
    return f"1 in {round(1 / chance):,}" if chance > 1e-9 else "less than 1 in a billion"


def _actor(interaction: Interaction, signal: Signal) -> str | None:
    if signal.user_key is not None:
        return signal.user_key
    return f"conversation {interaction.session}" if interaction.session_known else None
