"""The first half of a night: from the event log to a snapshot."""

import logging
import os
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine

from evals.probes import probe_questions
from flows.step import Step
from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.pii import Rules
from pipeline.clean.pii.on_demand import OnDemandDetector
from pipeline.clean.sketches import Sketches
from pipeline.clean.steps import clean_records
from pipeline.collect.join import join_feedback, without_texts
from pipeline.collect.quarantine import Quarantine, screen_and_withhold
from pipeline.config import BusinessConfig, Config, Settings
from pipeline.dataset.build import build_rows
from pipeline.dataset.snapshot import write_snapshot
from pipeline.dataset.suite import Suite, golden_prompts, golden_questions, load_suite
from pipeline.erase.ledger import ErasureLedger
from pipeline.erase.log import forget_in_segments, leave_out
from pipeline.events.lake import compact
from pipeline.events.read import read_events
from pipeline.events.retention import expire
from pipeline.records import CleanRecord, Dropped, RatedInteraction, SnapshotManifest, Split

logger = logging.getLogger("flows.nightly")

_ALONE = 2000
"""Interactions with feedback that one process cleans in the time in which others load their models."""
_MOST_PROCESSES = 4
"""Each takes 500 MB."""
_TELL_S = 5.0


def build_snapshot(
    config: Config, settings: Settings, about: BusinessConfig, control: Engine, due: datetime, step: Step
) -> tuple[SnapshotManifest, Path]:
    """collect -> poison screen -> clean -> near-duplicates -> examples -> snapshot. Hold the business's lock.

    Args:
        control: the control database.
        due: when the night was due: the end of its window.
        step: runs each step.

    Returns:
        What the snapshot holds, and its folder.
    """
    start = due - timedelta(days=about.dataset.window_days)
    rated = _collect(config.state_dir / "events", about, control, start, due, step)
    quarantine = Quarantine(control)
    trusted, withheld = step(screen_and_withhold, "poison screen")(quarantine, rated, about.business, about.poison, due)
    if withheld:
        look = f"tuneloop quarantine list --business {about.business}"
        logger.info("poison screen: %d interactions are held or dropped; look: %s", len(withheld), look)
    suite = load_suite(config.directory / about.suite) if about.suite else Suite()
    fixed = (*golden_questions(suite), *probe_questions())
    clean, unclean = _clean(settings, about, fixed, trusted, step)
    del trusted
    rated = without_texts(rated)  # a window's texts are most of a night's memory
    sketches = Sketches(config.state_dir / "duplicates", about.business)
    unique, duplicates = step(drop_duplicates, "near-duplicates")(
        clean, about.dataset.near_duplicate_threshold, sketches.signatures
    )
    rows, unused = step(build_rows, "examples")(unique, about.business, about.dataset, due, fixed)
    dropped = [*withheld, *unclean, *duplicates, *unused]
    root = config.state_dir / "snapshots"
    manifest = step(write_snapshot, "snapshot")(
        root, business=about.business, window=(start, due), rated=rated, clean=clean, dropped=dropped, rows=rows
    )
    logger.info("snapshot %s: %s rows to train on", manifest.snapshot_id[:8], manifest.rows[Split.TRAIN])
    return manifest, root / about.business / manifest.snapshot_id


def _collect(
    events_dir: Path, about: BusinessConfig, control: Engine, start: datetime, due: datetime, step: Step
) -> list[RatedInteraction]:
    erased = ErasureLedger(control).erased()
    if erased and (late := step(forget_in_segments, "erased users")(events_dir, erased)):
        logger.info("%d events of erased users came since last night, and are gone", late)
    step(compact)(events_dir)
    step(expire, "retention")(events_dir, about.business, about.retention_days, due)
    events = leave_out(step(read_events, "collect")(events_dir, about.business, start, due), erased)
    logger.info("collect: %d interactions, %d feedback", len(events.interactions), len(events.feedback))
    if events.unmatched_feedback:
        logger.info("collect: %d feedback came for interactions that are not in the log", events.unmatched_feedback)
    return step(join_feedback, "join")(events.interactions, events.feedback)


def _clean(
    settings: Settings, about: BusinessConfig, fixed: Sequence[str], trusted: Sequence[RatedInteraction], step: Step
) -> tuple[list[CleanRecord], list[Dropped]]:
    rules = Rules(about.pii, about.language)
    judged = sum(bool(one.signals) for one in trusted)
    cores = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))

    last = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal last
        if time.monotonic() - last > _TELL_S:
            last = time.monotonic()
            logger.info("clean: %d of %d", done, of)

    return step(clean_records, "clean")(
        trusted,
        OnDemandDetector(about.language, rules),
        golden_prompts(fixed),
        rules,
        settings.user_salt.get_secret_value().encode(),
        cores if judged > _ALONE else 1,
        tell,
    )
