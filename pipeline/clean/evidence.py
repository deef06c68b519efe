"""How strong the evidence behind a record is, so that the strongest of duplicates stays."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime

from pipeline.records import CleanRecord, FeedbackKind, Signal, canonical_json

_STRENGTH = {
    FeedbackKind.OUTCOME: 4,
    FeedbackKind.EDIT: 3,
    FeedbackKind.CHOICE: 2,
    FeedbackKind.THUMB: 1,
    FeedbackKind.RATING: 1,
}
"""What only says that somebody was there (a regeneration, an abort, a comment) is no evidence."""


class Evidence:
    """Outcome over edit over choice over vote; then what more users say of equal texts, so that one user who says the
    opposite of all others does not prevail by having come first; then the earlier record.

    Args:
        records: all that are compared.
        keys: of each interaction's texts: equal for equal ones.
    """

    def __init__(self, records: Sequence[CleanRecord], keys: Mapping[str, Hashable]) -> None:
        self._keys = keys
        self._saying: defaultdict[tuple[Hashable, str], set[str]] = defaultdict(set)
        for record in records:
            self._saying[self._claim(record)] |= self.users(record)

    def order(self, record: CleanRecord) -> tuple[int, int, datetime, str]:
        """Sorts the strongest to the front."""
        return -_strength(record), -len(self._saying[self._claim(record)]), record.at, record.interaction_id

    def of(self, record: CleanRecord) -> str:
        """In words."""
        strongest = max(_said(record), key=_weight, default=None)
        users = len(self._saying[self._claim(record)])
        kind = "no judgement" if strongest is None else f"{strongest.kind}, {users} user{'' if users == 1 else 's'}"
        return f"{kind}, {record.at:%Y-%m-%d %H:%M}"

    def agree(self, one: CleanRecord, other: CleanRecord) -> bool:
        """Whether the same is said of both."""
        return _verdict(one) == _verdict(other)

    def users(self, record: CleanRecord) -> set[str]:
        """Who says something of it that is evidence."""
        return {signal.user_key for signal in _said(record) if signal.user_key}

    def _claim(self, record: CleanRecord) -> tuple[Hashable, str]:
        return self._keys[record.interaction_id], _verdict(record)


def _said(record: CleanRecord) -> list[Signal]:
    return [signal for signal in record.signals if signal.value is not None and signal.kind in _STRENGTH]


def _weight(signal: Signal) -> int:
    return _STRENGTH[signal.kind]


def _strength(record: CleanRecord) -> int:
    return max(map(_weight, _said(record)), default=0)


def _verdict(record: CleanRecord) -> str:
    """What the strongest signals say."""
    signs = {signal.sign for signal in _said(record) if _weight(signal) == _strength(record)}
    return canonical_json([record.edited is not None, sorted(signs)])
