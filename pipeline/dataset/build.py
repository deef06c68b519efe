"""The chain from cleaned records to split rows, without a side effect: examples, golden suite, caps, split."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pipeline.clean.text import last_user_text
from pipeline.config import DatasetConfig
from pipeline.dataset.caps import cap_users, left_out
from pipeline.dataset.examples import build_examples
from pipeline.dataset.split import SplitRows, near_texts, split_examples
from pipeline.records import CleanRecord, Dropped, DropReason, Example


def build_rows(
    records: Sequence[CleanRecord], business: str, config: DatasetConfig, end: datetime, golden: Sequence[str] = ()
) -> tuple[SplitRows, list[Dropped]]:
    """Rows on their sides, and a reason for each record that gives none.

    Args:
        records: cleaned records of one business, without duplicates; their order changes nothing.
        business: its key.
        config: its section `dataset`.
        end: of the window; the newest `recent_days` before it are measured, not trained on.
        golden: questions that the gate always asks. Cleaning dropped what asks the same; what asks nearly the same goes
            here.
    """
    examples, useless = build_examples(records, config.min_users)
    free, near_golden = _apart_from_golden(examples, golden, config.near_duplicate_threshold)
    capped, beyond = cap_users(free, config.max_user_share, config.max_user_rows_floor)
    recent_start = end - timedelta(days=config.recent_days)
    rows = split_examples(capped, business, config.held_out_share, recent_start, config.near_duplicate_threshold)
    return rows, [*useless, *near_golden, *beyond, *rows.dropped]


def _apart_from_golden(
    examples: Sequence[Example], golden: Sequence[str], threshold: float
) -> tuple[Sequence[Example], list[Dropped]]:
    near = near_texts((last_user_text(e.prompt) for e in examples), golden, threshold) if golden else set()
    free = [e for e in examples if last_user_text(e.prompt) not in near]
    return free, left_out(examples, free, DropReason.GOLDEN)
