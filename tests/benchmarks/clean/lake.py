"""A lake of many events, made by DuckDB as compaction would leave it: one file for each business, day and hour."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BUSINESSES, DAYS = 20, 30
_AT_ONCE = 100_000
"""Events, roughly, in whole days, that are made in one query."""
FIRST_DAY = "2026-02-13"
"""So that the thirty days end with the benchmark's night."""

# Every eighth event is a thumb for an earlier interaction, and every hundredth came twice.
_EVENTS = """
    WITH events AS (
        SELECT n - (n % 100 = 99)::INT AS n, n % 8 = 7 AS is_feedback,
               CASE WHEN n % 8 = 7 THEN n - 4 - n % 3 ELSE n END AS about,
               $first::TIMESTAMPTZ + to_microseconds((n * ($days * 86400e6) / $count)::BIGINT) AS happened
        FROM range($begin, $end) AS numbers(n)
    ),
    named AS (
        SELECT *, format('{:012}-{:04}', about, about % 9973) AS interaction_id, 'user-' || n % 5000 AS user_key,
               strftime(happened, '%Y-%m-%dT%H:%M:%S.%fZ') AS moment, 
               md5(about::VARCHAR) || ' ' || md5(n::VARCHAR) AS words
        FROM events
    )
    SELECT CASE WHEN is_feedback THEN 'feedback' ELSE 'interaction' END AS kind,
           CASE WHEN is_feedback THEN 'event-' || n ELSE interaction_id END AS id,
           interaction_id,
           happened,
           CASE WHEN is_feedback THEN to_json({'feedback': {
               'business': $business, 'choice_index': 0, 'event_id': 'event-' || n, 'interaction_id': interaction_id,
               'kind': 'thumb', 'value': CASE WHEN n % 3 = 0 THEN 'down' ELSE 'up' END, 'user_key': user_key,
               'reason': NULL, 'occurred_at': moment, 'received_at': moment
           }}) ELSE to_json({'interaction': {
               'interaction_id': interaction_id, 'business': $business, 'session': 'session-' || n % 90000,
               'session_known': true, 'user_key': user_key, 'user_group': 'g00', 'arm': 'stable', 'share': 0.0,
               'rollout_salt': '', 'model_version': 'base', 'adapter': NULL, 'base_model': 'base',
               'prompt_hash': sha256(interaction_id),
               'request': {'messages': [{'role': 'user', 'content': words[:40]}], 'max_tokens': 256},
               'choices': [{'index': 0, 'message': {'role': 'assistant', 'content': repeat(words || ' ', 3)},
                            'finish_reason': 'stop'}],
               'usage': NULL, 'status': 200, 'stream_end': 'complete', 'client': 'bench', 'regenerates': NULL,
               'timings': {'queue_ms': 0.1, 'ttft_ms': 80.0, 'gap_p50_ms': NULL, 'gap_p99_ms': NULL,
                           'gap_max_ms': NULL, 'total_ms': 900.0},
               'started_at': moment
           }}) END::VARCHAR AS json
    FROM named
    ORDER BY date_trunc('hour', happened), kind, happened, id, json
"""


def rank_shares() -> list[float]:
    """Of each business, largest first (Zipf)."""
    weights = [1 / rank for rank in range(1, BUSINESSES + 1)]
    return [weight / sum(weights) for weight in weights]


def write_lake(events_dir: Path, count: int) -> None:
    """So many events in `lake/<business>/<day>/bench-<hour>.parquet`; the businesses are `business-0` and so on."""
    database = duckdb.connect(":memory:", config={"threads": 2})
    database.execute("SET TimeZone = 'UTC'")
    for rank, share in enumerate(rank_shares()):
        made = round(count * share)
        about = {"first": FIRST_DAY, "days": DAYS, "count": made, "business": f"business-{rank}"}
        at_once = max(1, DAYS * _AT_ONCE // made)
        for day in range(0, DAYS, at_once):
            bounds = {"begin": made * day // DAYS, "end": made * min(day + at_once, DAYS) // DAYS}
            events = database.sql(_EVENTS, params=about | bounds).to_arrow_table()
            _write_hours(events, events_dir / "lake" / f"business-{rank}")
    database.close()


def _write_hours(events: pa.Table, business: Path) -> None:
    hours = pc.floor_temporal(events["happened"], unit="hour")
    counts = pc.value_counts(hours)
    start = 0
    for counted in counts.to_pylist():
        folder = business / f"{counted['values']:%Y-%m-%d}"
        folder.mkdir(parents=True, exist_ok=True)
        hour = events.slice(start, counted["counts"])
        pq.write_table(hour, folder / f"bench-{counted['values']:%Y%m%dT%H}.parquet", compression="zstd")
        start += counted["counts"]
