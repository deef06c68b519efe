"""MinHash signatures kept from night to night: the index in which a night finds what earlier ones computed.

One file a business, `<state>/duplicates/<business>.parquet`, always whole: it is replaced at once. It holds the
interactions of the last window and nothing else, so it never grows beyond one. Signatures are of scrubbed texts, and no
text, user or value stands in it. It says nothing that the event log does not: without it, or with a part of it, a night
comes to the same snapshot and takes longer.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.clean.near.search import Bands, Row
from pipeline.clean.near.signatures import SCHEME, Signatures
from pipeline.tables import write_table

log = logging.getLogger(__name__)

_SCHEME = b"scheme"
_DIGEST_BYTES = 16


class Sketches:
    """The index of one business. Whoever uses it holds the business's lock.

    Args:
        folder: `<state>/duplicates`.
        business: its key.
    """

    def __init__(self, folder: Path, business: str) -> None:
        self._path = folder / f"{business}.parquet"

    def signatures(self, ids: Sequence[str], rows: Sequence[Row], bands: Bands) -> Signatures:
        """Those of the rows, for `drop_duplicates`. What is not there, or is of another text by now, is made; what is
        not asked for is not kept."""
        scheme = f"{SCHEME}; {bands.values} values a band; {len(rows[0]) if rows else 0} texts"
        keys = [(name, _digest(row)) for name, row in zip(ids, rows, strict=True)]
        known = self._read()
        there = known.places if known is not None and known.scheme == scheme else {}
        missing = [place for place, key in enumerate(keys) if key not in there]
        made = bands.signatures([rows[place] for place in missing])
        signed = np.empty((len(rows), made.shape[1]), np.uint32)
        signed[missing] = made
        if known is not None and there:
            found = [(place, there[key]) for place, key in enumerate(keys) if key in there]
            signed[[place for place, _ in found]] = known.signed[[place for _, place in found]]
        if missing or len(there) != len(rows):
            self._write(scheme, keys, signed)
        return signed

    def forget(self, gone: Callable[[str], bool]) -> int:
        """Take interactions out, durably, and return how many were there. May be killed at any point and called again.

        A file that cannot be read is deleted: nobody could say what is in it, and the next night makes it anew.

        Args:
            gone: whether an interaction id is to be forgotten.
        """
        known = self._read()
        if known is None:
            self._path.unlink(missing_ok=True)
            return 0
        kept = [(key, place) for key, place in known.places.items() if not gone(key[0])]
        if len(kept) < len(known.places):
            self._write(known.scheme, [key for key, _ in kept], known.signed[[place for _, place in kept]])
        return len(known.places) - len(kept)

    def _read(self) -> "_Known | None":
        """What is there; None when it is nothing that can be read."""
        if not self._path.exists():
            return None
        try:
            table = pq.ParquetFile(self._path).read(use_threads=False).combine_chunks()
            names, digests = (table[column].to_pylist() for column in ("interaction_id", "digest"))
            values = table["signature"].chunk(0) if len(table) else None
        except (OSError, pa.ArrowException, KeyError) as error:
            log.warning("%s cannot be read (%s); it is made anew", self._path, type(error).__name__)
            return None
        width = table.schema.field("signature").type.byte_width // 4
        signed = np.empty((0, width), np.uint32) if values is None else np.frombuffer(values.buffers()[1], np.uint32)
        scheme = (table.schema.metadata or {}).get(_SCHEME, b"").decode()
        places = {key: place for place, key in enumerate(zip(names, digests, strict=True))}
        return _Known(scheme, places, signed.reshape(-1, width))

    def _write(self, scheme: str, keys: Sequence[tuple[str, bytes]], signed: Signatures) -> None:
        order = sorted(range(len(keys)), key=keys.__getitem__)
        values = [signed[place].tobytes() for place in order]
        columns = {
            "interaction_id": pa.array([keys[place][0] for place in order], pa.string()),
            "digest": pa.array([keys[place][1] for place in order], pa.binary(_DIGEST_BYTES)),
            "signature": pa.array(values, pa.binary(signed.shape[1] * 4)),
        }
        write_table(self._path, pa.table(columns).replace_schema_metadata({_SCHEME: scheme.encode()}))


@dataclass(frozen=True)
class _Known:
    """The file's content."""

    scheme: str
    places: dict[tuple[str, bytes], int]
    """Interaction and digest of its texts to its row of `signed`."""
    signed: Signatures


def _digest(row: Row) -> bytes:
    """Of all texts, so that an answer that was edited since has a signature of its own."""
    return hashlib.blake2b("\x00".join(row).encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).digest()
