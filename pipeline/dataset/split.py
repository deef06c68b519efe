"""Which rows are trained on, and which only measured.

A fixed, hash-chosen share of the users is never trained on, whatever the night; the newest rows of the others are a
second set. No conversation, no interaction and no near-duplicate stands on both sides of training.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pipeline.clean.near.search import Bands, Neighbours
from pipeline.clean.text import message_text
from pipeline.dataset.caps import left_out
from pipeline.records import Dropped, DropReason, Example, PreferenceExample

FEW_USERS = 10
"""With fewer distinct users a share of them is nobody or half of the data: conversations are split instead."""


@dataclass(frozen=True)
class SplitRows:
    """Rows by the side that they stand on."""

    train: tuple[Example, ...]
    held_out: tuple[Example, ...]
    recent: tuple[Example, ...]
    dropped: tuple[Dropped, ...]
    """Interactions whose rows stood too near to a row on the other side."""
    split_by: Literal["user", "session"]
    """What was held out; `session` when there are too few users."""


def split_examples(
    examples: Sequence[Example],
    business: str,
    held_out_share: float,
    recent_start: datetime,
    near_duplicate_threshold: float = 0.8,
) -> SplitRows:
    """Split rows into those to train on, those of held-out users, and the newest of the other users.

    A row of several users is held out when one of them is. Where a training row and a held-out row are too near, the
    held-out one stays, so that the gate's set is the same whatever is trained on; a recent row gives way to training.

    Args:
        examples: rows of one business, in any order.
        business: part of the hash, so that a user of two businesses is not held out in both or neither.
        held_out_share: of the users, in [0, 1].
        recent_start: conversations with a row from here on are recent.
        near_duplicate_threshold: Jaccard similarity of texts that count as the same.
    """
    held, split_by = _held_out(examples, business, held_out_share)
    held_out = [example for example, out in zip(examples, held, strict=True) if out]
    others = [example for example, out in zip(examples, held, strict=True) if not out]
    newest = {e.source.session for e in others if e.source.at >= recent_start}
    train = _apart([e for e in others if e.source.session not in newest], held_out, near_duplicate_threshold)
    recent = _apart([e for e in others if e.source.session in newest], train, near_duplicate_threshold)
    # A conversation that is held out in part (two users in it) is measured by that part alone.
    held_sessions = {e.source.session for e in held_out}
    recent = [e for e in recent if e.source.session not in held_sessions]
    return SplitRows(
        train=tuple(train),
        held_out=tuple(held_out),
        recent=tuple(recent),
        dropped=tuple(left_out(examples, [*train, *held_out, *recent], DropReason.HELD_OUT_NEIGHBOUR)),
        split_by=split_by,
    )


def _held_out(
    examples: Sequence[Example], business: str, share: float
) -> tuple[list[bool], Literal["user", "session"]]:
    """For each row whether it is held out. A row of no known user goes with its conversation."""
    users = {user for example in examples for user in example.source.user_keys}
    by_session = [_chosen(f"session/{e.source.session}", business, share) for e in examples]
    by_user = [
        any(_chosen(f"user/{user}", business, share) for user in e.source.user_keys) if e.source.user_keys else session
        for e, session in zip(examples, by_session, strict=True)
    ]
    # Chance may choose none of a dozen users; a gate without a set is worth less than one split by conversation.
    return (by_user, "user") if len(users) >= FEW_USERS and any(by_user) else (by_session, "session")


def _chosen(unit: str, business: str, share: float) -> bool:
    """A fixed draw in [0, 1) below the share."""
    digest = hashlib.sha256(f"held-out/{business}/{unit}".encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56 < share


def _apart(rows: Sequence[Example], others: Sequence[Example], threshold: float) -> list[Example]:
    """The rows that share no conversation, no interaction and no near text with any of the others."""
    sessions = {e.source.session for e in others}
    interactions = {i for e in others for i in e.source.interaction_ids}
    near = near_texts(map(row_text, rows), map(row_text, others), threshold)
    return [
        e
        for e in rows
        if e.source.session not in sessions
        and interactions.isdisjoint(e.source.interaction_ids)
        and row_text(e) not in near
    ]


def near_texts(texts: Iterable[str], others: Iterable[str], threshold: float) -> set[str]:
    """Those of the texts that are near to any of the others. Facts don't count here: what asks the same about another
    number may be learned, but measures little."""
    first, behind = list(dict.fromkeys(others)), list(dict.fromkeys(texts))
    rows = [(text,) for text in (*first, *behind)]
    bands = Bands.at(threshold)
    found = Neighbours(rows, bands, bands.signatures(rows)).near_any_of(len(first))
    return {text for text, near in zip(behind, found.tolist(), strict=True) if near}


def row_text(example: Example) -> str:
    """The conversation and its wanted answer, without the system prompt that all conversations share."""
    answer = example.chosen if isinstance(example, PreferenceExample) else example.completion
    said = [message for message in example.prompt if message.get("role") != "system"]
    return "\n".join(message_text(message) for message in (*said, *answer))
