"""The header and the values of a safetensors file, with NumPy alone.

The format: 8 bytes little-endian length, a JSON header of that length, then the tensors' bytes without gaps
(https://github.com/huggingface/safetensors#format). Every figure in the header is checked against the file before it
is used, since the file may come from anywhere.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_MAX_HEADER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Tensor:
    """One entry of the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """Offset of its first byte in the file."""
    end: int


def read_header(path: Path) -> dict[str, Tensor]:
    """Names and shapes of the tensors in the file.

    Raises:
        ValueError: it is no safetensors file, or its header does not fit its bytes; says how.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, _MAX_HEADER_BYTES):
            raise ValueError(f"its header claims {length} bytes of {size}: cut short, or no safetensors file")
        raw = file.read(length)
    try:
        header = json.loads(raw, object_pairs_hook=_without_duplicates)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError("its header is no JSON") from error
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    header.pop("__metadata__", None)
    tensors = {name: _tensor(name, entry, 8 + length) for name, entry in header.items()}
    reached = 8 + length
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start != reached:
            raise ValueError(f"tensor '{name}' starts at byte {tensor.start}, not at {reached}")
        reached = tensor.end
    if reached != size:
        raise ValueError(f"its tensors end at byte {reached} of {size}: cut short, or something is appended")
    return tensors


def largest_magnitude(path: Path, tensor: Tensor) -> float:
    """Largest absolute value of a tensor; NaN or infinity when it holds one.

    Raises:
        ValueError: its type is none of F64, F32, F16 and BF16.
    """
    if tensor.dtype not in _BYTES:
        raise ValueError(f"tensors of type {tensor.dtype} are not known")
    kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}[tensor.dtype]
    count = (tensor.end - tensor.start) // _BYTES[tensor.dtype]
    if count == 0:
        return 0.0
    values = np.fromfile(path, dtype=kind, count=count, offset=tensor.start)
    if tensor.dtype == "BF16":  # the upper half of a float32
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return float(np.max(np.abs(values)))


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("its header names something twice")
    return names


def _tensor(name: str, entry: object, data_start: int) -> Tensor:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            pass
        case _:
            raise ValueError(f"tensor '{name}' is not described by dtype, shape and data_offsets")
    if not all(type(size) is int and size >= 0 for size in shape) or not 0 <= start <= end:
        raise ValueError(f"tensor '{name}' has an impossible shape {shape} or place {start}..{end}")
    if dtype in _BYTES and end - start != math.prod(shape) * _BYTES[dtype]:
        raise ValueError(f"tensor '{name}' of shape {shape} in {dtype} cannot take {end - start} bytes")
    return Tensor(dtype, tuple(shape), data_start + start, data_start + end)
