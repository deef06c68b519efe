"""Feedback joined to interactions: what each user finally said, and which answers were regenerated.

The order in which events arrive says nothing and changes nothing; only their own times count.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pipeline.records import Feedback, FeedbackKind, Interaction, RatedInteraction, Signal, canonical_json


def join_feedback(interactions: Sequence[Interaction], feedback: Iterable[Feedback]) -> list[RatedInteraction]:
    """Each interaction once, by (started_at, interaction_id), with the latest signal of each user, kind and choice.

    The latest is the one with the greatest (occurred_at, event_id). A signal whose value is null was withdrawn; it
    stays, so that "withdrawn" can be told from "never said". Feedback that names no user is the user's who asked.
    Feedback for other interactions is left out.
    """
    by_id: dict[str, Interaction] = {}
    for interaction in interactions:
        known = by_id.setdefault(interaction.interaction_id, interaction)
        if known is not interaction:
            by_id[interaction.interaction_id] = min(known, interaction, key=_canonical)
    said: dict[str, list[Feedback]] = defaultdict(list)
    for event in _each_once(feedback):
        if event.interaction_id in by_id:
            said[event.interaction_id].append(event)
    replaced_by = _replacements(by_id, said)
    return [
        RatedInteraction(
            interaction=interaction,
            signals=_final_signals(said[interaction.interaction_id], interaction.user_key),
            replaced_by=replaced_by.get(interaction.interaction_id),
        )
        for interaction in sorted(by_id.values(), key=_time)
    ]


def without_texts(rated: Iterable[RatedInteraction]) -> list[RatedInteraction]:
    """The same, without anything that was said in the interactions: enough for counting."""
    return [
        one.model_copy(update={"interaction": one.interaction.model_copy(update={"request": {}, "choices": ()})})
        for one in rated
    ]


def _each_once(feedback: Iterable[Feedback]) -> list[Feedback]:
    """One of each event id: the first that was received, whatever order they come in."""
    first: dict[str, Feedback] = {}
    for event in feedback:
        known = first.get(event.event_id)
        if known is None or (event.received_at, _canonical(event)) < (known.received_at, _canonical(known)):
            first[event.event_id] = event
    return list(first.values())


def _final_signals(events: list[Feedback], asker: str | None) -> tuple[Signal, ...]:
    groups: dict[tuple[str, FeedbackKind, int], list[Feedback]] = defaultdict(list)
    for event in sorted(events, key=lambda e: (e.occurred_at, e.event_id)):
        groups[event.user_key or asker or "", event.kind, event.choice_index].append(event)
    signals = [
        Signal(
            kind=history[-1].kind,
            value=history[-1].value,
            choice_index=history[-1].choice_index,
            user_key=history[-1].user_key or asker,
            reason=history[-1].reason,
            occurred_at=history[-1].occurred_at,
            event_ids=tuple(event.event_id for event in history),
        )
        for history in groups.values()
    ]
    return tuple(sorted(signals, key=lambda s: (s.occurred_at, s.event_ids)))


def _replacements(by_id: dict[str, Interaction], said: dict[str, list[Feedback]]) -> dict[str, str]:
    """Replaced interaction to the one that replaced it.

    Answers to one turn form a group: those that name each other (header `X-Regenerates`, feedback `regenerate` with
    the new id), and those with an identical prompt in one known session. In a group time decides, not who named whom:
    each answer is replaced by the next one that came at all. A new try that got no answer replaces nothing.
    """
    groups = _Groups()
    for interaction in by_id.values():
        if interaction.regenerates in by_id:
            groups.join(interaction.interaction_id, interaction.regenerates)
        if interaction.session_known:
            turn = f"{interaction.session}\n{interaction.prompt_hash}"  # an interaction id holds no line break
            groups.join(interaction.interaction_id, turn)
    for interaction_id, events in said.items():
        for event in events:
            if event.kind is FeedbackKind.REGENERATE and isinstance(event.value, str) and event.value in by_id:
                groups.join(interaction_id, event.value)
    turns: dict[str, list[Interaction]] = defaultdict(list)
    for interaction in sorted(by_id.values(), key=_time):
        turns[groups.root(interaction.interaction_id)].append(interaction)
    replaced_by: dict[str, str] = {}
    for turn_of in turns.values():
        following: str | None = None
        for interaction in reversed(turn_of):
            if following is not None:
                replaced_by[interaction.interaction_id] = following
            if interaction.choices and interaction.status < 400:
                following = interaction.interaction_id
    return replaced_by


class _Groups:
    """Union-find over names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        top = name
        while (parent := self._parent.get(top, top)) != top:
            top = parent
        while name != top:
            name, self._parent[name] = self._parent.get(name, name), top
        return top

    def join(self, one: str, other: str | None) -> None:
        if other is not None:
            self._parent[self.root(one)] = self.root(other)


def _time(interaction: Interaction) -> tuple[object, str]:
    return interaction.started_at, interaction.interaction_id


def _canonical(record: Interaction | Feedback) -> str:
    return canonical_json(record.model_dump(mode="json"))
