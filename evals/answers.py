"""Answers by request key: in memory, and line by line in a file, so that nothing is asked twice after a kill."""

import json
import threading
from pathlib import Path
from typing import Any


class Answers:
    """What was answered so far; each answer is written as it comes.

    Args:
        path: the file; None keeps nothing beyond this process.
    """

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {}
        self._file = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        complete = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        for line in complete.splitlines():
            record = json.loads(line)
            self._values[record["key"]] = record["value"]
        path.touch(mode=0o600)
        self._file = path.open("r+b")
        # A kill may have left half a line: writing goes on after the last whole one.
        self._file.truncate(len(complete) + 1 if complete else 0)
        self._file.seek(0, 2)

    def has(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> Any:
        return self._values[key]

    def put(self, key: str, value: Any) -> None:
        line = json.dumps({"key": key, "value": value}, ensure_ascii=True)
        with self._lock:
            self._values[key] = value
            if self._file is not None:
                self._file.write(line.encode() + b"\n")
                self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
