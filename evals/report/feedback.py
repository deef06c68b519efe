"""What users said, what was learned from, and what was left out and why."""

from typing import NamedTuple

from evals.report.speaker import Speaker
from evals.report.texts import DROPS, SIGNALS
from pipeline.records import SnapshotManifest, Split


class Bar(NamedTuple):
    """One line of a bar chart."""

    name: str
    amount: int
    width: float
    """Percent of the longest bar."""


def said(manifest: SnapshotManifest, say: Speaker) -> tuple[str, list[Bar]]:
    bars = _bars({say.pick(SIGNALS[kind]): count for kind, count in manifest.signal_counts.items() if count})
    if not bars:
        return say("said_none"), []
    start, end = (say.date(at, time=False) for at in (manifest.window_start, manifest.window_end))
    return say("said_window", users=manifest.users, start=start, end=end), bars


class Used(NamedTuple):
    """What became of the interactions."""

    sources: int
    dropped: int
    sources_width: float
    told: str
    wrong: bool
    reasons: list[Bar]
    rows: list[str]


def used(manifest: SnapshotManifest, say: Speaker) -> Used:
    dropped = sum(manifest.dropped.values())
    wrong = manifest.sources + dropped != manifest.interactions
    total = max(manifest.sources + dropped, 1)
    train = manifest.rows.get(Split.TRAIN, {})
    kinds = [say(f"rows_{kind}", n=count) for kind, count in train.items() if count]
    rows = [say("rows_taught", n=sum(train.values()), detail=say.listed(kinds))] if kinds else []
    for split, key in ((Split.HELD_OUT, "rows_held_out"), (Split.RECENT, "rows_recent")):
        if count := sum(manifest.rows.get(split, {}).values()):
            rows.append(say(key, n=count))
    found = {kind: count for kind, count in manifest.pii_counts.items() if count}
    names = [f"{count:,} {say.personal_data(kind)}" for kind, count in sorted(found.items())]
    rows.append(say("pii_removed", detail=say.listed(names)) if names else say("pii_none"))
    return Used(
        sources=manifest.sources,
        dropped=dropped,
        sources_width=round(100 * manifest.sources / total, 2),
        told=say(
            "used_sum_wrong" if wrong else "used_sum",
            interactions=manifest.interactions,
            sources=manifest.sources,
            dropped=dropped,
        ),
        wrong=wrong,
        reasons=_bars({say.pick(DROPS[reason]): count for reason, count in manifest.dropped.items() if count}),
        rows=rows,
    )


def _bars(counts: dict[str, int]) -> list[Bar]:
    longest = max(counts.values(), default=1)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Bar(name, count, round(100 * count / longest, 1)) for name, count in ordered]
