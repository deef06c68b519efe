"""Adapter folders on disk: named by their content, complete as soon as they exist, never changed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from pipeline.errors import RegistryError, RegistryUnavailable
from pipeline.train.process import adapter_digest


def check_folder(folder: Path, sha256: str) -> None:
    """Refuse a folder that does not hold the adapter of that digest.

    Raises:
        RegistryError: a file is missing, or the content is another.
    """
    try:
        found = adapter_digest(folder)
    except OSError as error:
        raise RegistryError(f"adapter {sha256[:12]}: cannot read {error.filename}: {error.strerror}") from error
    if found != sha256:
        raise RegistryError(
            f"adapter {sha256[:12]}: {folder} holds {found[:12]}; move that folder away and it will be fetched again"
        )


def put_folder(adapters_dir: Path, sha256: str, write: Callable[[Path], None]) -> Path:
    """The folder `adapters_dir / sha256`, made by `write` unless it is there.

    A folder that is there and damaged is not mended, since an engine may be reading it: that is an error.

    Raises:
        RegistryError: what is there, or what `write` made, is not that adapter.
        RegistryUnavailable: the disk refuses.
    """
    target = adapters_dir / sha256
    if target.exists():
        check_folder(target, sha256)
        return target
    try:
        adapters_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=adapters_dir, prefix=".fetch-") as work:
            made = Path(work) / sha256
            made.mkdir()
            write(made)
            check_folder(made, sha256)
            try:
                os.rename(made, target)
            except OSError:  # somebody else was quicker
                if not target.exists():
                    raise
                check_folder(target, sha256)
    except OSError as error:
        if error.errno is None:  # an HTTP client's, out of `write`
            raise
        raise RegistryUnavailable(
            f"adapter {sha256[:12]}: cannot write {target}: {error.strerror}; free some space"
        ) from error
    return target
