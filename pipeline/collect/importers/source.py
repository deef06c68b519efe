"""The file that is imported: opened as often as an importer likes, and how far it has been read."""

import gzip
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class _Counted(io.FileIO):
    """A file that knows how far it was read."""

    furthest = 0

    def readinto(self, buffer: "io.BufferedIOBase | memoryview | bytearray") -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)  # type: ignore[arg-type]
        self.furthest = max(self.furthest, self.tell())
        return count


class Source:
    """A file on disk, gzipped or not; a zip archive or a folder of files.

    Args:
        encoding: of text in it; default: UTF-8.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self.encoding = encoding
        self.repaired = 0
        """Texts in which half of a surrogate pair became U+FFFD."""
        self.size = (
            sum(p.stat().st_size for p in path.iterdir() if p.is_file()) if path.is_dir() else path.stat().st_size
        )
        self._open: list[_Counted] = []
        self._before = 0

    @property
    def position(self) -> int:
        """Bytes on disk that were read so far, at most `size`."""
        return min(self.size, max([self._before, *(raw.furthest for raw in self._open)]))

    @property
    def suffix(self) -> str:
        """The kind that the name says, such as `.jsonl`."""
        return Path(self.path.name.lower().removesuffix(".gz")).suffix

    @property
    def parts(self) -> list[str]:
        """Names of the files in a zip archive or folder; empty for a single file.

        Raises:
            zipfile.BadZipFile: it is no zip archive, whatever its name says.
        """
        if self.path.is_dir():
            return sorted(p.name for p in self.path.iterdir() if p.is_file())
        if self.suffix != ".zip":
            return []
        with zipfile.ZipFile(self.path) as archive:
            return sorted(archive.namelist())

    @contextmanager
    def open(self, part: str | None = None) -> Iterator[BinaryIO]:
        """Bytes of the file, or of one of its parts.

        Raises:
            OSError, EOFError, zlib.error, zipfile.BadZipFile: also later, when a damaged file is read.
        """
        raw = _Counted(self.path / part if part is not None and self.path.is_dir() else self.path)
        self._open.append(raw)
        try:
            with io.BufferedReader(raw, 256 * 1024) as file:
                if part is not None and not self.path.is_dir():
                    with zipfile.ZipFile(file) as archive, archive.open(part) as inner:
                        yield inner  # type: ignore[misc]
                elif self.path.name.lower().endswith(".gz"):
                    with gzip.GzipFile(fileobj=file) as unpacked:
                        yield unpacked  # type: ignore[misc]
                else:
                    yield file
        finally:
            self._open.remove(raw)
            self._before = max(self._before, raw.furthest)
