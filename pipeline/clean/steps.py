"""Cleaning in its order: encoding, use, delivery and messages, quality, personal data, the golden suite.

What is cheap comes first, and what needs the text as it was comes before the personal data goes. For each interaction
there comes out exactly one clean record or one reason.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from pydantic import JsonValue

from pipeline.clean.pii.borders import join_split_numbers
from pipeline.clean.pii.placeholders import Texts
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import PiiDetector
from pipeline.clean.quality import delivery_fault, faults_before_scrubbing, message_fault
from pipeline.clean.scrubbing import Draft, Scrubber, latest_edit, scrub_all
from pipeline.clean.text import comparison_key, is_system, last_user_text, message_text, repair_json, repair_text
from pipeline.records import Choice, CleanRecord, Dropped, DropReason, FeedbackKind, Message, RatedInteraction, Signal

_SHARED_BY = 3
"""A system prompt that so many users got is the business's text; the names in it are nobody's personal data."""
_ABOUT_THE_TURN = frozenset({FeedbackKind.REGENERATE, FeedbackKind.ABORT})
_STRENGTH = (FeedbackKind.EDIT, FeedbackKind.CHOICE, FeedbackKind.OUTCOME, FeedbackKind.THUMB, FeedbackKind.RATING)


def clean_records(
    rated: Sequence[RatedInteraction],
    detector: PiiDetector,
    golden: frozenset[str],
    rules: Rules | None = None,
    facts_key: bytes = b"",
    processes: int = 1,
    tell: Callable[[int, int], None] | None = None,
) -> tuple[list[CleanRecord], list[Dropped]]:
    """Clean one business's rated interactions; each gives one record or one reason.

    Where a request asked for several answers and users rated more than one, the record is about the one with the
    strongest signal (edit, choice, outcome, thumb, rating, others; then the latest).

    Args:
        rated: in any order; the result is in order of time.
        detector: finds personal data. What it fails on is dropped as `SCRUB_FAILED`, never passed.
        golden: `comparison_key` of each question that the gate always asks.
        rules: what the business says about personal data, as the detector had it.
        facts_key: makes the hash of each record's facts useless to whoever sees it; records are compared under one key.
        processes: that look for personal data; more than one need a detector that can be pickled.
        tell: told now and then how many interactions of how many that need cleaning are clean.

    Raises:
        DataError: a pattern of the rules is too slow to be used, or a process died.
    """
    drafts: list[Draft] = []
    dropped: list[Dropped] = []
    not_chosen = frozenset(signal.over for one in rated for signal in one.signals if signal.over is not None)
    for one in sorted(rated, key=lambda r: (r.interaction.started_at, r.interaction.interaction_id)):
        made = _draft(one, golden, not_chosen)
        if isinstance(made, Dropped):
            dropped.append(made)
        else:
            drafts.append(made)
    fixed = _shared_system_prompts(drafts)
    scrubber = Scrubber(detector, rules, fixed, facts_key)
    records: list[CleanRecord] = []
    for cleaned in scrub_all(_by_session(drafts), scrubber, processes, tell):
        if isinstance(cleaned, Dropped):
            dropped.append(cleaned)
        else:
            records.append(cleaned)
    return sorted(records, key=lambda r: (r.at, r.interaction_id)), dropped


def _draft(rated: RatedInteraction, golden: frozenset[str], not_chosen: frozenset[str]) -> Draft | Dropped:
    """Take an interaction that somebody spoke about, be it by asking for another answer or by choosing another."""
    interaction = rated.interaction
    spoken_of = rated.replaced_by is not None or interaction.interaction_id in not_chosen
    if not rated.signals and not spoken_of and interaction.regenerates is None:
        return _drop(rated, DropReason.NO_FEEDBACK)
    if fault := delivery_fault(interaction):
        return _drop(rated, *fault)
    request = {key: repair_json(value) for key, value in interaction.request.items()}
    if mistake := message_fault(request.get("messages")):
        return _drop(rated, DropReason.BAD_MESSAGES, mistake)
    choice = _rated_choice(rated)
    if choice is None:
        return _drop(rated, DropReason.EMPTY_SIDE, "no such answer")
    signals = tuple(s for s in rated.signals if s.choice_index == choice.index or s.kind in _ABOUT_THE_TURN)
    messages = join_split_numbers(_objects(request.get("messages")))
    texts = Texts(messages, _objects(request.get("tools")), _answer(choice), tuple(_notes(signals)))
    prompt = "\n".join(map(message_text, messages))
    if fault := faults_before_scrubbing(texts.answer, latest_edit(signals, texts.notes), prompt, signals, choice):
        return _drop(rated, *fault)
    if comparison_key(last_user_text(messages)) in golden:
        return _drop(rated, DropReason.GOLDEN)
    return Draft(rated, texts, signals)


def _rated_choice(rated: RatedInteraction) -> Choice | None:
    def strength(signal: Signal) -> tuple[int, float]:
        weakness = _STRENGTH.index(signal.kind) if signal.kind in _STRENGTH else len(_STRENGTH)
        return -weakness, signal.occurred_at.timestamp()

    about = [signal for signal in rated.signals if signal.kind not in _ABOUT_THE_TURN]
    index = max(about, key=strength).choice_index if about else 0
    return next((choice for choice in rated.interaction.choices if choice.index == index), None)


def _answer(choice: Choice) -> Message:
    repaired = repair_json(choice.message)
    assert isinstance(repaired, dict)
    return {"role": "assistant", **repaired}


def _notes(signals: Sequence[Signal]) -> list[str | None]:
    notes: list[str | None] = []
    for signal in signals:
        free = signal.kind in (FeedbackKind.EDIT, FeedbackKind.COMMENT) and isinstance(signal.value, str)
        notes += [repair_text(str(signal.value)) if free else None]
        notes += [None if signal.reason is None else repair_text(signal.reason)]
    return notes


def _shared_system_prompts(drafts: Sequence[Draft]) -> frozenset[str]:
    users: defaultdict[str, set[str]] = defaultdict(set)
    for draft in drafts:
        for message in filter(is_system, draft.texts.messages):
            users[message_text(message)].add(draft.rated.interaction.user_key or draft.rated.interaction.session)
    return frozenset(text for text, keys in users.items() if text and len(keys) >= _SHARED_BY)


def _by_session(drafts: Sequence[Draft]) -> list[list[Draft]]:
    sessions: defaultdict[tuple[str, str], list[Draft]] = defaultdict(list)
    for draft in drafts:
        sessions[draft.rated.interaction.business, draft.rated.interaction.session].append(draft)
    return list(sessions.values())


def _objects(value: JsonValue) -> tuple[Message, ...]:
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _drop(rated: RatedInteraction, reason: DropReason, detail: str = "") -> Dropped:
    return Dropped(interaction_id=rated.interaction.interaction_id, reason=reason, detail=detail)
