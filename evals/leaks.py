"""What the gate asks must not have been learned: a snapshot whose training rows know it is refused.

The build keeps the sides apart. This looks at what came out, so that a fault of the build, a changed suite or a folder
that was made by hand is found before a night is spent on it, and before a number is believed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

from evals.probes import probe_questions
from pipeline.clean.text import comparison_key, last_user_text
from pipeline.dataset.snapshot import Rows, Snapshot
from pipeline.dataset.split import near_texts, row_text
from pipeline.dataset.suite import Suite, golden_questions
from pipeline.errors import DataError
from pipeline.records import Example, Split


class Leak(StrEnum):
    """What stands in the training rows although the gate asks it."""

    INTERACTION = "a measured interaction"
    USER = "a held-out user"
    CONVERSATION = "a measured conversation"
    NEAR_DUPLICATE = "nearly a measured question and answer"
    GOLDEN = "a question of the golden suite, or nearly one"
    PROBE = "a question of tuneloop's own probes, or nearly one"


def find_leaks(snapshot: Snapshot, suite: Suite, threshold: float) -> dict[str, Leak]:
    """Training rows that should not be there, by their first interaction; of several leaks the first in `Leak`.

    Args:
        suite: the business's golden suite.
        threshold: of near-duplicates, as the snapshot was built with (`dataset.near_duplicate_threshold`).
    """
    train = snapshot.rows.get(Split.TRAIN, Rows()).all()
    held_out = snapshot.rows.get(Split.HELD_OUT, Rows()).all()
    measured = [*held_out, *snapshot.rows.get(Split.RECENT, Rows()).all()]
    interactions = {i for row in measured for i in row.source.interaction_ids}
    conversations = {row.source.session for row in measured}
    users = _held_out_users(train, held_out) if snapshot.manifest.split_by == "user" else set()
    near = near_texts(map(row_text, train), map(row_text, measured), threshold)
    asked = {
        Leak.GOLDEN: _asks(train, golden_questions(suite), threshold),
        Leak.PROBE: _asks(train, probe_questions(), threshold),
    }

    def leak(row: Example) -> Leak | None:
        found = {
            Leak.INTERACTION: not interactions.isdisjoint(row.source.interaction_ids),
            Leak.USER: not users.isdisjoint(row.source.user_keys),
            Leak.CONVERSATION: row.source.session in conversations,
            Leak.NEAR_DUPLICATE: row_text(row) in near,
            **{kind: last_user_text(row.prompt) in questions for kind, questions in asked.items()},
        }
        return next((kind for kind, there in found.items() if there), None)

    return {row.source.interaction_ids[0]: kind for row in train if (kind := leak(row))}


def refuse_leaks(snapshot: Snapshot, suite: Suite, threshold: float) -> None:
    """Let a snapshot pass only where training rows hold nothing that the gate asks.

    Raises:
        DataError: they do; says what, and names an interaction of each kind, never a user.
    """
    leaks = find_leaks(snapshot, suite, threshold)
    if not leaks:
        return
    counts = Counter(leaks.values())
    examples = {kind: min(name for name, own in leaks.items() if own is kind) for kind in counts}
    told = "; ".join(f"{count} of them hold {kind} (such as '{examples[kind]}')" for kind, count in counts.items())
    manifest = snapshot.manifest
    raise DataError(
        f"snapshot '{manifest.snapshot_id[:12]}' of business '{manifest.business}': what the gate asks stands in the "
        f"training rows, so it would measure memory: {told}; build the snapshot again, with today's suite"
    )


def _held_out_users(train: Iterable[Example], held_out: Iterable[Example]) -> set[str]:
    """Held-out users of whom there are training rows. A row of several users is held out for one of them: it is enough
    that one of its users is in no training row."""
    trained = {user for row in train for user in row.source.user_keys}
    rows = (set(row.source.user_keys) for row in held_out)
    return {user for users in rows if users <= trained for user in users}


def _asks(train: Sequence[Example], fixed: Sequence[str], threshold: float) -> set[str]:
    """Questions of training rows that are one of the fixed ones, or near to it."""
    questions = [last_user_text(row.prompt) for row in train]
    same = set(map(comparison_key, fixed))
    near = near_texts(questions, fixed, threshold) if fixed else set()
    return near | {question for question in questions if comparison_key(question) in same}
