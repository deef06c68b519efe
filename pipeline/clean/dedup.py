"""Exact and near duplicates: which records say the same, and which one of them stays.

Likeness alone makes no duplicate: records whose numbers, negations or names differed before personal data was replaced
are never duplicates of each other (`facts.py`). Only the given records are compared: a record goes in favour of one
that is in the same snapshot, or not at all.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from pipeline.clean.evidence import Evidence
from pipeline.clean.near.search import Bands, Neighbours, Row
from pipeline.clean.near.signatures import Signatures
from pipeline.clean.text import compared_texts, comparison_key, is_system, message_text
from pipeline.records import CleanRecord, Dropped, DropReason

Key: TypeAlias = tuple[str, ...]
"""What is the same in exact duplicates: system prompt, facts, and the compared texts."""


class SignatureSource(Protocol):
    """Where the signatures of records come from: made now, or kept from an earlier night."""

    def __call__(self, ids: Sequence[str], rows: Sequence[Row], bands: Bands) -> Signatures:
        """One signature a row; `ids` are the rows' interactions."""


def drop_duplicates(
    records: Sequence[CleanRecord], threshold: float, signatures: SignatureSource | None = None
) -> tuple[list[CleanRecord], list[Dropped]]:
    """Keep of each set of duplicates the record with the strongest evidence, and among equals the earliest.

    Duplicates have the same system prompt and the same facts, and answers, questions, edits and earlier turns that are
    each near: a greeting or a canned answer makes no duplicates of different questions. The sides of a regeneration
    or a choice belong together: neither is a duplicate of the other, and they go only together. The order of `records`
    doesn't matter.

    Args:
        records: of one business.
        threshold: Jaccard index of the shingles (three words, or three Chinese characters) of near texts.
        signatures: where they come from; default: all are made now.

    Returns:
        The kept records in order of time, each backed by the users who say the same of its duplicates; and a reason for
        each of the others, with the interaction that stays in its place.
    """
    keys = {record.interaction_id: _key(record) for record in records}
    evidence = Evidence(records, keys)
    units = _compared_groups(sorted(records, key=evidence.order))
    nearest = _nearest(units, keys, threshold, signatures)
    kept: list[CleanRecord] = []
    of_key: dict[Key, CleanRecord] = {}
    dropped: list[Dropped] = []
    backers: defaultdict[str, set[str]] = defaultdict(set)
    for unit in units:
        if unit[0].interaction_id not in nearest:
            kept += unit
            for record in unit:
                of_key.setdefault(keys[record.interaction_id], record)
            continue
        for record in unit:
            same = of_key.get(keys[record.interaction_id])
            stays = same or nearest[record.interaction_id]
            reason = DropReason.EXACT_DUPLICATE if same else DropReason.NEAR_DUPLICATE
            why = f"{evidence.of(record)}; the one that stays: {evidence.of(stays)}"
            dropped.append(
                Dropped(interaction_id=record.interaction_id, reason=reason, detail=why, kept=stays.interaction_id)
            )
            if evidence.agree(record, stays):
                backers[stays.interaction_id] |= evidence.users(record)
    backed = (r.model_copy(update={"backed_by": tuple(sorted(backers[r.interaction_id]))}) for r in kept)
    return sorted(backed, key=lambda r: (r.at, r.interaction_id)), dropped


def _nearest(
    units: Sequence[Sequence[CleanRecord]], keys: dict[str, Key], threshold: float, signatures: SignatureSource | None
) -> dict[str, CleanRecord]:
    """For each record that gives way the strongest kept one that it is near to."""
    records = [record for unit in units for record in unit]
    rows = [_texts(record) for record in records]
    bands = Bands.at(threshold)
    ids = [record.interaction_id for record in records]
    signed = bands.signatures(rows) if signatures is None else signatures(ids, rows, bands)
    numbers: dict[Key, int] = {}
    groups = [numbers.setdefault(keys[name][:2], len(numbers)) for name in ids]
    starts = np.cumsum([0, *map(len, units)])
    found = Neighbours(rows, bands, signed, np.array(groups, np.int64)).first_come(starts)
    return {ids[row]: records[place] for row, place in enumerate(found.tolist()) if place >= 0}


def _key(record: CleanRecord) -> Key:
    system = "\n".join(message_text(message) for message in record.messages if is_system(message))
    return comparison_key(system), record.facts, *map(comparison_key, _texts(record))


def _texts(record: CleanRecord) -> Row:
    return compared_texts(record.messages, record.answer, record.edited)


def _compared_groups(ordered: Iterable[CleanRecord]) -> list[list[CleanRecord]]:
    """Records joined by a regeneration or a choice, in the order of the first of each group."""
    ordered = list(ordered)
    leader = {record.interaction_id: record.interaction_id for record in ordered}

    def lead(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for record in ordered:
        for other in (record.replaced_by, *(signal.over for signal in record.signals)):
            if other in leader:
                leader[lead(other)] = lead(record.interaction_id)
    groups: defaultdict[str, list[CleanRecord]] = defaultdict(list)
    for record in ordered:
        groups[lead(record.interaction_id)].append(record)
    return list(groups.values())
