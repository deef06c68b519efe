"""What an edit says: how far two texts are apart, and whether there is anything in between to learn from."""

import re
from enum import StrEnum

from rapidfuzz.distance import Levenshtein

from pipeline.clean.text import comparison_key, edit_is_trivial, normalise
from pipeline.records import DropReason

PAIR_DISTANCE = 0.6
"""Up to here an edit mends an answer; beyond, it is another answer, and why this one was bad cannot be told."""

_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
# Numbers and words stay whole (also 1.5, -5, don't, well-known): a corrected digit is no deletion.
_TOKEN = re.compile(rf"[{_CJK}]|(?:(?<!\w)-)?[^\W_{_CJK}]+(?:['’.,:/_-][^\W_{_CJK}]+)*|\S")


class EditKind(StrEnum):
    """What an edit may be used for."""

    PAIR = "pair"  # the edited text is better than the original, and a target
    TARGET = "target"  # a target only: rewritten, or only shortened
    TRIVIAL = "trivial"  # width, spaces or punctuation: a target, and nothing against the original


def difference(better: str, worse: str, prompt: str) -> DropReason | None:
    """Why two texts make no pair; None when they do.

    Args:
        better: the edited or chosen text.
        worse: the original or rejected text.
        prompt: the last thing that the user said.
    """
    if not better.strip() or not worse.strip():
        return DropReason.EMPTY_SIDE
    if better == worse:
        return DropReason.IDENTICAL
    if _outer(better) == _outer(worse):
        return DropReason.IDENTICAL_AFTER_NORMALISE
    if comparison_key(better) == comparison_key(prompt):
        return DropReason.EQUALS_PROMPT
    if edit_is_trivial(worse, better):
        return DropReason.TRIVIAL_EDIT
    return None


def classify_edit(original: str, edited: str, prompt: str) -> EditKind | DropReason:
    """What an edit is good for, or why it is good for nothing.

    The distance is Levenshtein's over characters, divided by the length of the longer text, in [0, 1].
    """
    match difference(edited, original, prompt):
        case DropReason.EMPTY_SIDE if edited.strip():
            return EditKind.TARGET  # there was no answer; the user wrote one
        case DropReason.TRIVIAL_EDIT:
            return EditKind.TRIVIAL
        case None:
            pass
        case reason:
            return reason
    if _only_deletes(original, edited):
        return EditKind.TARGET
    far = Levenshtein.normalized_distance(original, edited, score_cutoff=PAIR_DISTANCE) > PAIR_DISTANCE
    return EditKind.TARGET if far else EditKind.PAIR


def _outer(text: str) -> str:
    """Without the spaces around it and at the ends of its lines, where nobody sees them."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _only_deletes(original: str, edited: str) -> bool:
    before, after = _TOKEN.findall(normalise(original)), _TOKEN.findall(normalise(edited))
    rest = iter(before)
    return len(after) < len(before) and all(token in rest for token in after)
