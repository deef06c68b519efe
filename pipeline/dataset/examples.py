"""Cleaned records to training rows: what each signal is worth.

Pairs across interactions are only made between answers to exactly the same messages and tools. A record that gives
no row is dropped with one reason.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pipeline.clean.text import message_text
from pipeline.dataset.edits import EditKind, difference
from pipeline.dataset.evidence import Judged, judge
from pipeline.records import (
    CleanRecord,
    Dropped,
    DropReason,
    Example,
    FeedbackKind,
    Message,
    PreferenceExample,
    SftExample,
    Source,
    UnpairedExample,
    canonical_json,
)

WEAK = 0.5
"""Weight of a row that rests on a regeneration or a trivial edit alone, or whose answer was aborted by the user."""


def build_examples(records: Sequence[CleanRecord], min_users: int) -> tuple[list[Example], list[Dropped]]:
    """All rows that the records give, and a reason for each record that gives none. Their order changes nothing.

    Args:
        records: cleaned records of one business; one for each interaction.
        min_users: distinct users that must say the same before it is a row.
    """
    judged = sorted(map(judge, records), key=lambda j: (j.record.at, j.id))
    draft = _Draft({j.id: j for j in judged})
    for one in judged:
        _rows_of_one(draft, one)
    _pairs_of_choices(draft)
    _pairs_of_regenerations(draft)
    _pairs_of_votes(draft)
    examples, too_few = _said_by_enough(draft, min_users)
    used = {interaction_id for example in examples for interaction_id in example.source.interaction_ids}
    dropped = [
        Dropped(interaction_id=one.id, reason=DropReason.TOO_FEW_USERS if one.id in too_few else _reason(draft, one))
        for one in judged
        if one.id not in used
    ]
    return examples, dropped


@dataclass
class _Draft:
    """Rows in the making."""

    by_id: dict[str, Judged]
    rows: list[tuple[Example, frozenset[str]]] = field(default_factory=list)
    """Each with the users who say so."""
    rejected: set[str] = field(default_factory=set)
    """Interactions that are the worse side of a pair already."""
    problems: dict[str, DropReason] = field(default_factory=dict)
    """Why an interaction could not be paired."""

    def add(self, example: Example, *judged: Judged) -> None:
        self.rows.append((example, frozenset().union(*(j.users for j in judged))))

    def pair(self, better: Judged, worse: Judged, chosen: Message, weight: float) -> DropReason | None:
        """Add a pair, or say why it is none."""
        reason = _no_pair(better, worse, chosen)
        if reason is None:
            self.rejected.add(worse.id)
            self.add(
                PreferenceExample(
                    prompt=worse.record.messages,
                    chosen=(chosen,),
                    rejected=(_message(worse),),
                    tools=worse.record.tools,
                    source=_source(weight, better, worse),
                ),
                better,
                worse,
            )
        return reason


def _rows_of_one(draft: _Draft, one: Judged) -> None:
    record = one.record
    base = {"prompt": record.messages, "tools": record.tools}
    if one.edit is not None:
        edited = _text_message(record.edited or "")
        weight = WEAK if one.edit is EditKind.TRIVIAL and one.sign == 0 else 1.0
        draft.add(SftExample(**base, completion=(edited,), source=_source(weight, one)), one)
        if one.edit is EditKind.PAIR:
            draft.pair(one, one, edited, 1.0)
    elif one.sign > 0 and not one.replaced:
        draft.add(SftExample(**base, completion=(_message(one),), source=_source(1.0, one)), one)
    if one.sign != 0:
        row = UnpairedExample(**base, completion=(_message(one),), label=one.sign > 0, source=_source(1.0, one))
        draft.add(row, one)


def _pairs_of_choices(draft: _Draft) -> None:
    """The answer chosen over the one it was chosen over, unless users or stronger signals disagree."""
    latest: dict[tuple[str, str], dict[str | None, tuple[datetime, str]]] = defaultdict(dict)
    for one in draft.by_id.values():
        for signal in one.said:
            if signal.over is None or signal.over not in draft.by_id or signal.over == one.id:
                continue
            users = latest[min(one.id, signal.over), max(one.id, signal.over)]
            says = (signal.occurred_at, one.id)
            users[signal.user_key] = max(says, users.get(signal.user_key, says))
    for ids, users in latest.items():
        winners = {winner for _, winner in users.values()}
        better, worse = (draft.by_id[i] for i in sorted(ids, key=lambda i: (i not in winners, i)))
        if len(winners) > 1 or better.sign < worse.sign:
            reason: DropReason | None = DropReason.CONFLICT
        else:
            reason = draft.pair(better, worse, _message(better), 1.0)
        if reason is not None:
            for interaction_id in ids:
                draft.problems.setdefault(interaction_id, reason)


def _pairs_of_regenerations(draft: _Draft) -> None:
    """The kept answer over a replaced one, when somebody says that the kept one is good."""
    for one in draft.by_id.values():
        kept = _kept(draft, one)
        if kept is None or kept.sign <= 0 or one.sign > 0 or one.edit is not None or one.id in draft.rejected:
            continue
        reason = draft.pair(kept, one, _message(kept), WEAK if one.sign == 0 else 1.0)
        if reason is not None:
            draft.problems.setdefault(one.id, reason)


def _pairs_of_votes(draft: _Draft) -> None:
    """A liked or edited answer over one that was not liked; each of these once, against the nearest one."""
    liked: dict[str, list[tuple[Judged, Message]]] = defaultdict(list)
    for one in draft.by_id.values():
        if one.edit in (EditKind.PAIR, EditKind.TARGET):
            liked[one.prefix].append((one, _text_message(one.record.edited or "")))
        elif one.sign > 0:
            liked[one.prefix].append((one, _message(one)))
    for one in draft.by_id.values():
        if one.sign < 0 and one.edit is None and one.id not in draft.rejected:
            near = sorted((_nearness(one, other), place) for place, (other, _) in enumerate(liked[one.prefix]))
            candidates = (liked[one.prefix][place] for _, place in near)
            any(draft.pair(better, one, chosen, 1.0) is None for better, chosen in candidates)


def _nearness(one: Judged, other: Judged) -> tuple[bool, bool, float, str]:
    """Same conversation before same user before others, then nearest in time: a pair is as new as its newer answer, and
    the newest are not trained on."""
    return (
        one.record.session != other.record.session,
        one.record.user_key != other.record.user_key,
        abs((other.record.at - one.record.at).total_seconds()),
        other.id,
    )


def _kept(draft: _Draft, one: Judged) -> Judged | None:
    """The last answer to a turn that was asked for again; None when it is not there."""
    seen = {one.id}
    kept = one
    while kept.record.replaced_by is not None:
        following = draft.by_id.get(kept.record.replaced_by)
        if following is None or following.id in seen:
            return None
        seen.add(following.id)
        kept = following
    return None if kept is one else kept


def _no_pair(better: Judged, worse: Judged, chosen: Message) -> DropReason | None:
    if better.prefix != worse.prefix:
        return DropReason.PROMPT_MISMATCH
    rejected = _message(worse)
    if chosen.get("tool_calls") or rejected.get("tool_calls"):
        return DropReason.IDENTICAL if chosen == rejected else None
    return difference(message_text(chosen), message_text(rejected), worse.asked)


def _said_by_enough(draft: _Draft, min_users: int) -> tuple[list[Example], set[str]]:
    """Rows that enough users stand behind, and the interactions of the others."""
    users: dict[str, set[str]] = defaultdict(set)
    for example, said_by in draft.rows:
        users[_claim(example)] |= said_by
    kept: list[Example] = []
    too_few: set[str] = set()
    for example, _ in draft.rows:
        if min_users <= 1 or len(users[_claim(example)]) >= min_users:
            kept.append(example)
        else:
            too_few.update(example.source.interaction_ids)
    return kept, too_few


def _claim(example: Example) -> str:
    return canonical_json([type(example).__name__, example.model_dump(mode="json", exclude={"source"})])


def _reason(draft: _Draft, one: Judged) -> DropReason:
    if one.problem is not None:
        return one.problem
    if one.id in draft.problems:
        return draft.problems[one.id]
    if one.record.replaced_by is not None:
        return DropReason.REPLACED
    if one.said:
        return DropReason.WEAK_EVIDENCE
    return DropReason.WITHDRAWN if one.record.signals else DropReason.NO_FEEDBACK


def _source(weight: float, *judged: Judged) -> Source:
    """Lineage of a row; the first of `judged` gives the conversation."""
    distinct = list({j.id: j for j in judged}.values())
    aborted = any(s.kind is FeedbackKind.ABORT for j in distinct for s in j.said)
    return Source(
        interaction_ids=tuple(j.id for j in distinct),
        event_ids=tuple(sorted({e for j in distinct for s in j.said for e in s.event_ids})),
        model_versions=tuple(sorted({j.record.model_version for j in distinct})),
        user_keys=tuple(sorted({key for j in distinct for key in _users_in(j)})),
        session=distinct[0].record.session,
        at=max(j.record.at for j in distinct).astimezone(UTC),
        weight=min(weight, WEAK) if aborted else weight,
    )


def _users_in(judged: Judged) -> Iterator[str]:
    """Who asked, and who spoke."""
    for key in (judged.record.user_key, *(signal.user_key for signal in judged.said)):
        if key is not None:
            yield key


def _message(judged: Judged) -> Message:
    """The answer without the fields that an engine leaves empty."""
    return {k: v for k, v in judged.record.answer.items() if k in ("role", "content") or v not in (None, [])}


def _text_message(text: str) -> Message:
    return {"role": "assistant", "content": text}
