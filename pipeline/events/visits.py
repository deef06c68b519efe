"""Who came when: the event log without its texts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from pipeline.errors import DataError
from pipeline.events.lake import database_in_memory
from pipeline.events.read import select

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_visits(events_dir: Path, business: str, start: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """When which user (else session) asked something in [start, end), oldest first.

    Raises:
        DataError: the log cannot be read.
    """
    who = "json_extract_string(json, ['$.interaction.user_key', '$.interaction.session'])"
    try:
        with database_in_memory() as database:
            selected = select(database, events_dir, business, start, end)
            rows = database.execute(
                f"""SELECT epoch_us(happened), coalesce(who[1], who[2])
                    FROM (SELECT happened, {who} AS who FROM ({selected.of_window})
                          WHERE kind = 'interaction' AND happened >= $start AND happened < $end)
                    ORDER BY happened""",
                selected.window,
            ).fetchall()
    except (duckdb.IOException, FileNotFoundError) as error:
        raise DataError(
            f"{events_dir}: the event log cannot be read ({error}); ask again, or look at the disk"
        ) from error
    return [(_EPOCH + timedelta(microseconds=at), who) for at, who in rows]
