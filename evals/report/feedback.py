"""What users said, what was learned from, and what was left out and why."""

from collections.abc import Mapping
from typing import NamedTuple

from evals.report.speaker import Speaker
from evals.report.texts import DROPS, SIGNALS
from pipeline.records import FeedbackKind, SnapshotManifest, Split, content_id


class Bar(NamedTuple):
    """One line of a bar chart."""

    name: str
    amount: int
    width: float
    """Percent of the longest bar."""
    note: str = ""


class Said(NamedTuple):
    """What users said in the time that the snapshot covers."""

    intro: str
    signals: list[Bar]
    reasons: list[Bar]
    reasons_id: str
    """Stands for the reasons, so that an erasure can tell whether the page quotes one that is gone."""


def said(manifest: SnapshotManifest, say: Speaker) -> Said:
    """Counts by kind, with praise and blame where a kind has both, and the reasons that several users gave."""
    counts = {kind: count for kind, count in manifest.signal_counts.items() if count}
    if not counts:
        return Said(say("said_none"), [], [], "")
    start, end = (say.date(at, time=False) for at in (manifest.window_start, manifest.window_end))
    notes = {say.pick(SIGNALS[kind]): _opinion(kind, manifest, say) for kind in counts}
    signals = _bars({say.pick(SIGNALS[kind]): count for kind, count in counts.items()}, notes)
    reasons = _bars({text: len(users) for text, users in manifest.reasons.items()})
    return Said(say("said_window", users=manifest.users, start=start, end=end), signals, reasons, reasons_id(manifest))


def reasons_id(manifest: SnapshotManifest) -> str:
    """Hash of the reasons that a snapshot quotes, and of how many users gave each."""
    return content_id({text: len(users) for text, users in manifest.reasons.items()})


def _opinion(kind: FeedbackKind, manifest: SnapshotManifest, say: Speaker) -> str:
    praise, blame = manifest.praise.get(kind, 0), manifest.blame.get(kind, 0)
    return say("praise_and_blame", praise=praise, blame=blame) if praise or blame else ""


class Used(NamedTuple):
    """What became of the interactions."""

    sources: int
    dropped: int
    interactions: int
    sources_width: float
    told: str
    wrong: bool
    reasons: list[Bar]
    rows: list[str]


def used(manifest: SnapshotManifest, say: Speaker) -> Used:
    dropped = sum(manifest.dropped.values())
    wrong = manifest.sources + dropped != manifest.interactions
    total = max(manifest.sources + dropped, 1)
    return Used(
        sources=manifest.sources,
        dropped=dropped,
        interactions=manifest.interactions,
        sources_width=round(100 * manifest.sources / total, 2),
        told=say(
            "used_sum_wrong" if wrong else "used_sum",
            interactions=manifest.interactions,
            sources=manifest.sources,
            dropped=dropped,
        ),
        wrong=wrong,
        reasons=_bars({say.pick(DROPS[reason]): count for reason, count in manifest.dropped.items() if count}),
        rows=_rows(manifest, say),
    )


def _rows(manifest: SnapshotManifest, say: Speaker) -> list[str]:
    train = manifest.rows.get(Split.TRAIN, {})
    kinds = [say(f"rows_{kind}", n=count) for kind, count in train.items() if count]
    rows = [say("rows_taught", n=sum(train.values()), detail=say.listed(kinds)) if kinds else say("rows_none")]
    for split, key in ((Split.HELD_OUT, "rows_held_out"), (Split.RECENT, "rows_recent")):
        if count := sum(manifest.rows.get(split, {}).values()):
            rows.append(say(key, n=count))
    found = {kind: count for kind, count in manifest.pii_counts.items() if count}
    names = [f"{count:,} {say.personal_data(kind)}" for kind, count in sorted(found.items())]
    rows.append(say("pii_removed", detail=say.listed(names)) if names else say("pii_none"))
    return rows


def _bars(counts: Mapping[str, int], notes: Mapping[str, str] | None = None) -> list[Bar]:
    longest = max(counts.values(), default=1)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Bar(name, count, round(100 * count / longest, 1), (notes or {}).get(name, "")) for name, count in ordered]
