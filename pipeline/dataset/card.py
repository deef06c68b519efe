"""A snapshot's data card: what it holds, for whoever must answer for it, without a word of what users wrote.

The card is derived from the manifest, the rows and the reasons alone, so it can be made again from the folder. It is no
part of the snapshot's id, and holds neither a user's key nor any text.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pipeline.clean.text import message_text
from pipeline.records import (
    Dropped,
    DropReason,
    Example,
    Message,
    PreferenceExample,
    SftExample,
    SnapshotManifest,
    Split,
    UnpairedExample,
)

_PERCENTILES = (50, 90, 99, 100)
_TOP_USERS = 10
_HAN = re.compile("[\u3400-\u9fff]")
_LATIN = re.compile("[A-Za-zªµºÀ-ÖØ-öø-ɏ]")
_HAN_SHARE = 0.1
"""Of a row's letters: below it a text with a Chinese name in it is not called Chinese."""
_NAME_CHARS = 80
_DUPLICATES = {
    DropReason.EXACT_DUPLICATE: "the same question, answer and edit as one that stayed",
    DropReason.NEAR_DUPLICATE: "nearly the same as one that stayed",
    DropReason.HELD_OUT_NEIGHBOUR: "too near to a row on the other side of the split",
}
_READ = """\
- A **source** is an interaction that at least one row comes from. Every other interaction of the window was left out
  for exactly one reason, so both sides of the sum above are equal; a snapshot whose sums differ is never written.
- **train** is trained on. **held_out** are users (or conversations, where the users are too few) that are never
  trained on: the gate's main set. **recent** is the newest part of the others' window, scored and not trained on.
- **sft** rows are targets to imitate, **preference** rows a better and a worse answer to one prompt, **unpaired** rows
  one answer that was liked or not. One interaction may give several rows.
- Personal data stands in the rows as placeholders such as `<PHONE_1>`: the same value, the same placeholder, through a
  conversation. The counts are of all cleaned interactions, also of those that were left out afterwards.
- The id is a hash over the rows. The same rows on another night are the same snapshot, and this card tells of the
  night that wrote it.
- `tuneloop snapshot show` shows rows with their lineage, `tuneloop snapshot diff` what changed since another one."""


def render_card(manifest: SnapshotManifest, rows: Mapping[Split, Sequence[Example]], dropped: Iterable[Dropped]) -> str:
    """The card in Markdown.

    Args:
        manifest: of the snapshot.
        rows: all rows of each side.
        dropped: what was left out.
    """
    every = [example for side in rows.values() for example in side]
    reasons = Counter(drop.reason for drop in dropped)
    sections = (
        f"# Snapshot {manifest.snapshot_id[:8]} of `{manifest.business}`",
        _summary(manifest, every),
        "## Rows\n\n" + _row_counts(rows),
        "## Interactions\n\n" + _interactions(manifest, reasons),
        "## Signals\n\nWhat users finally said, after withdrawals, of all interactions of the window.\n\n"
        + _counts(("signal", "times"), manifest.signal_counts.items()),
        "## Users\n\n" + _users(every),
        "## Languages and lengths\n\n" + _languages(rows) + "\n\n" + _lengths(every),
        "## Personal data replaced\n\n"
        + _counts(("type", "distinct values, summed over interactions"), manifest.pii_counts.items()),
        "## Duplicates left out\n\n" + _duplicates(manifest, reasons),
        "## Answers by model version\n\n" + _models(every),
        "## How to read it\n\n" + _READ,
    )
    return "\n\n".join(sections) + "\n"


def _summary(manifest: SnapshotManifest, rows: Sequence[Example]) -> str:
    times = sorted(row.source.at for row in rows)
    span = f"{times[0]:%Y-%m-%d %H:%M} to {times[-1]:%Y-%m-%d %H:%M} UTC" if times else "no rows"
    facts = {
        "id": f"`{manifest.snapshot_id}`",
        "window": f"{manifest.window_start:%Y-%m-%d %H:%M} to {manifest.window_end:%Y-%m-%d %H:%M} UTC, end excluded",
        "interactions that rows come from": span,
        "rows": len(rows),
        "conversations": len({row.source.session for row in rows}),
        "held out by": manifest.split_by,
        "rows of weak evidence (weight below 1)": _part(sum(row.source.weight < 1 for row in rows), len(rows)),
        "rows with tools": _part(sum(bool(row.tools) for row in rows), len(rows)),
        "unpaired rows that were liked": _part(*_liked(rows)),
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _liked(rows: Iterable[Example]) -> tuple[int, int]:
    labels = [row.label for row in rows if isinstance(row, UnpairedExample)]
    return sum(labels), len(labels)


def _row_counts(rows: Mapping[Split, Sequence[Example]]) -> str:
    kinds = (SftExample, PreferenceExample, UnpairedExample)
    table = [
        [split.value, *(sum(isinstance(row, kind) for row in rows[split]) for kind in kinds), len(rows[split])]
        for split in Split
    ]
    sums = [sum(int(line[at]) for line in table) for at in range(1, 5)]
    return _table(("side", "sft", "preference", "unpaired", "all"), [*table, ["**all**", *sums]])


def _interactions(manifest: SnapshotManifest, reasons: Mapping[DropReason, int]) -> str:
    left_out = sum(reasons.values())
    equation = f"{manifest.interactions} interactions = {manifest.sources} sources + {left_out} left out."
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = [[reason.value, times, _share(times, manifest.interactions)] for reason, times in ordered]
    total = ["**all left out**", left_out, _share(left_out, manifest.interactions)]
    return f"{equation}\n\n" + _table(("left out because", "interactions", "share"), [*lines, total])


def _users(rows: Sequence[Example]) -> str:
    supplied = Counter(user for row in rows for user in row.source.user_keys)
    most = [times for _, times in supplied.most_common(_TOP_USERS)]
    top = {user for user, _ in supplied.most_common(_TOP_USERS)}
    of_top = sum(not top.isdisjoint(row.source.user_keys) for row in rows)
    facts = {
        "users": len(supplied),
        "largest share of one user": _part(most[0] if most else 0, len(rows)),
        f"share of the {len(most)} largest together": _part(of_top, len(rows)),
        "rows of several users": _part(sum(len(row.source.user_keys) > 1 for row in rows), len(rows)),
        "rows of no known user": _part(sum(not row.source.user_keys for row in rows), len(rows)),
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _languages(rows: Mapping[Split, Sequence[Example]]) -> str:
    found = {split: Counter(_language(row) for row in rows[split]) for split in Split}
    languages = sorted(set().union(*found.values()))
    lines = [[language, *(found[split][language] for split in Split)] for language in languages]
    return _table(("script of question and answer", *Split), lines)


def _language(row: Example) -> str:
    """By script, which is certain, and not by a guess at the words."""
    text = "".join(message_text(message) for message in (*row.prompt, *_answer(row)))
    letters, han, latin = sum(map(str.isalpha, text)), len(_HAN.findall(text)), len(_LATIN.findall(text))
    if not letters:
        return "none"
    if han >= _HAN_SHARE * letters:
        return "Chinese" if latin < _HAN_SHARE * letters else "Chinese and Latin"
    return "Latin" if latin >= letters / 2 else "other"


def _lengths(rows: Sequence[Example]) -> str:
    measured = {
        "prompt, characters": [_chars(row.prompt) for row in rows],
        "answer to learn (completion, chosen), characters": [_chars(_answer(row)) for row in rows],
        "rejected answer, characters": [_chars(row.rejected) for row in rows if isinstance(row, PreferenceExample)],
        "prompt, messages": [len(row.prompt) for row in rows],
    }
    lines = [[name, *(_percentile(values, p) for p in _PERCENTILES)] for name, values in measured.items() if values]
    names = ("length", "half are at most", "90 %", "99 %", "longest")
    return _table(names, lines) + "\n\nTokens depend on the base model's tokenizer and are counted when it trains."


def _duplicates(manifest: SnapshotManifest, reasons: Mapping[DropReason, int]) -> str:
    lines = [
        [meaning, reasons.get(reason, 0), _share(reasons.get(reason, 0), manifest.interactions)]
        for reason, meaning in _DUPLICATES.items()
    ]
    return _table(("left out as", "interactions", "share"), lines)


def _models(rows: Sequence[Example]) -> str:
    versions = Counter(_name(version) for row in rows for version in row.source.model_versions)
    ordered = sorted(versions.items(), key=lambda item: (-item[1], item[0]))
    return _counts(("version", "rows it answered in"), ordered)


def _counts(names: tuple[str, str], counts: Iterable[tuple[str, int]]) -> str:
    lines = [[str(name), times] for name, times in counts]
    return _table(names, lines) if lines else "None."


def _table(names: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    head = ["| " + " | ".join(names) + " |", "|---|" + "---:|" * (len(names) - 1)]
    return "\n".join([*head, *("| " + " | ".join(map(str, line)) + " |" for line in lines)])


def _answer(row: Example) -> tuple[Message, ...]:
    return row.chosen if isinstance(row, PreferenceExample) else row.completion


def _chars(messages: Iterable[Message]) -> int:
    return sum(len(message_text(message)) for message in messages)


def _percentile(values: Sequence[int], percent: int) -> int:
    """The smallest value that so many percent are not above."""
    return sorted(values)[max(0, math.ceil(percent * len(values) / 100) - 1)]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _part(part: int, whole: int) -> str:
    return f"{part} of {whole} ({_share(part, whole)})"


def _name(version: str) -> str:
    """A model's name as one cell of a table, whatever an imported log called it."""
    plain = "".join(char if char.isprintable() and char not in "|`" else "_" for char in version)
    return f"`{plain[:_NAME_CHARS]}`"
