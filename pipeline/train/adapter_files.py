"""An adapter's files and the digest that names it. No torch in here: trainer, registry and controller read it."""

import hashlib
from pathlib import Path

from pipeline.errors import DataError
from pipeline.records import content_id

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
"""All that an adapter's folder holds."""


def adapter_digest(folder: Path) -> str:
    """SHA-256 (64 hex digits) over the names and bytes of the adapter's files in `folder`.

    Raises:
        DataError: one of the files is missing.
    """
    return content_id({name: _file_digest(folder / name) for name in ADAPTER_FILES})


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"adapter: cannot read {path}: {error.strerror or error}; fetch or train it again") from error
