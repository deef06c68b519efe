"""The chain from cleaned records to split rows, without a side effect: examples, caps, split."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pipeline.config import DatasetConfig
from pipeline.dataset.caps import cap_users
from pipeline.dataset.examples import build_examples
from pipeline.dataset.split import SplitRows, split_examples
from pipeline.records import CleanRecord, Dropped


def build_rows(
    records: Sequence[CleanRecord], business: str, config: DatasetConfig, end: datetime
) -> tuple[SplitRows, list[Dropped]]:
    """Rows on their sides, and a reason for each record that gives none.

    Args:
        records: cleaned records of one business, without duplicates; their order changes nothing.
        business: its key.
        config: its section `dataset`.
        end: of the window; the newest `recent_days` before it are measured, not trained on.
    """
    examples, useless = build_examples(records, config.min_users)
    capped, beyond = cap_users(examples, config.max_user_share, config.max_user_rows_floor)
    recent_start = end - timedelta(days=config.recent_days)
    rows = split_examples(capped, business, config.held_out_share, recent_start, config.near_duplicate_threshold)
    return rows, [*useless, *beyond, *rows.dropped]
