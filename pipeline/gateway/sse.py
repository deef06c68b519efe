"""Takes the usage-only chunk out of an event stream for a client that did not ask for it.

Every other byte passes at once and unchanged. Only the start of an event that may still turn out to be that chunk
waits for its end: an engine writes it in one piece, so nothing waits in practice.
"""

import re

import msgspec

_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n|\Z))")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_HAS_CHOICE = re.compile(rb'"choices"\s*:\s*\[\s*[^\s\]]')
_EMPTY_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_HOLD_LIMIT = 64 * 1024


class UsageFilter:
    """Feed it what comes; send on what it returns."""

    def __init__(self) -> None:
        self._held = b""
        self._passing = False
        """Inside an event whose start has been sent."""

    def feed(self, data: bytes) -> bytes:
        """Bytes that may go to the client now."""
        if not self._held and not self._passing and b'"usage"' not in data and _ends_whole(data):
            return data
        data = self._held + data
        self._held = b""
        passed: list[bytes] = []
        start = 0
        while start < len(data):
            end = _EVENT_END.search(data, start)
            if end is None:
                rest = data[start:]
                if self._passing or not _may_be_usage(rest):
                    self._passing = True
                    passed.append(self._keep_line_end(rest))
                else:
                    self._held = rest
                break
            event = data[start : end.end()]
            if self._passing or not _is_usage_only(event):
                passed.append(event)
            self._passing = False
            start = end.end()
        return b"".join(passed)

    def rest(self) -> bytes:
        """What is still held when the stream ends."""
        held, self._held = self._held, b""
        return held

    def _keep_line_end(self, rest: bytes) -> bytes:
        """Hold the line end at the end of `rest` back: with the next bytes it may be the event's end."""
        kept = len(rest)
        while kept and rest[kept - 1] in b"\r\n":
            kept -= 1
        self._held = rest[kept:]
        return rest[:kept]


def _ends_whole(data: bytes) -> bool:
    return data.endswith((b"\n\n", b"\r\n\r\n"))


def _may_be_usage(start: bytes) -> bool:
    """Whether an event that begins like this can be the usage-only chunk."""
    return len(start) < _HOLD_LIMIT and not start.startswith(b":") and not _HAS_CHOICE.search(start)


def _is_usage_only(event: bytes) -> bool:
    if b'"usage"' not in event or not _EMPTY_CHOICES.search(event):
        return False
    lines = [line for line in _LINE_END.split(event) if line.startswith(b"data:")]
    try:
        chunk = msgspec.json.decode(b"\n".join(line[5:] for line in lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)
