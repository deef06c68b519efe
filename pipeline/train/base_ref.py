"""Name a base model by its content. No torch in here: flows, controller and tests read it."""

import hashlib
import json
from pathlib import Path

from pipeline.errors import DataError
from pipeline.records import BaseModelRef, content_id

_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")


def base_model_ref(path: Path, model_id: str, revision: str) -> BaseModelRef:
    """The reference of the base model in folder `path`.

    The digest covers names and bytes of its weights, tokenizer, template and configuration. Hashing half a gigabyte
    takes a second, so the files' digests are cached beside the folder (`.<name>.digests.json`) by size and time of
    change; where the folder is read-only there is no cache.

    Raises:
        DataError: the folder holds no model.
    """
    files = sorted({file for pattern in _PATTERNS for file in path.glob(pattern) if file.is_file()})
    if not any(file.suffix == ".safetensors" for file in files):
        raise DataError(f"base model '{model_id}': no *.safetensors in {path}; `make setup` puts it there")
    cache_path = path.parent / f".{path.name}.digests.json"
    known = _read_cache(cache_path)
    digests = {file.name: known.get(_stamp(file)) or _digest(file) for file in files}
    fresh = {_stamp(file): digests[file.name] for file in files}
    if fresh != known:
        _write_cache(cache_path, fresh)
    return BaseModelRef(id=model_id, revision=revision, digest=content_id(digests))


def _stamp(file: Path) -> str:
    stat = file.stat()
    return f"{file.name} {stat.st_size} {stat.st_mtime_ns}"


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_cache(path: Path) -> dict[str, str]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write_cache(path: Path, digests: dict[str, str]) -> None:
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(digests, indent=1), encoding="utf-8")
        partial.replace(path)
    except OSError:
        return  # a read-only model store: hash again next time
