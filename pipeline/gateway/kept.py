"""Small files in which a gateway keeps over a restart what nobody else could tell it."""

import logging
import os
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from pipeline.records import Record

log = logging.getLogger(__name__)

_Kept = TypeVar("_Kept", bound=Record)


def read_kept(path: Path, kind: type[_Kept]) -> _Kept | None:
    """What was kept; None when nothing was, or nothing that can be read."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        log.error("%s is not readable and is ignored; the next write replaces it", path)
        return None


def write_kept(path: Path, value: Record) -> None:
    """Replace a file so that a crash leaves either the old or the new one."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(value.model_dump_json().encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
