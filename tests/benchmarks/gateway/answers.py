"""What the stub engine says, made once: it must cost so little that only the gateway under test is measured."""

import json

STREAM_EVENTS = 54
"""`data:` events of a stream: the role, 50 pieces of content, the finish, the usage, [DONE]."""
STREAM_WRITES = STREAM_EVENTS - 1
"""The stub writes usage and [DONE] together, as engines do."""

_WORDS = "the order was shipped on monday and should reach you by the end of this week at the latest "
_ID = "chatcmpl-6f1c2d9ab84e4f7d"
_USAGE = {"prompt_tokens": 312, "completion_tokens": 200, "total_tokens": 512}


def completion() -> bytes:
    """An HTTP answer with a chat completion of 200 tokens, about 1.4 KB."""
    text = (_WORDS * 20)[:1050]
    message = {"role": "assistant", "content": text, "refusal": None, "tool_calls": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    body = json.dumps(_document("chat.completion", [choice], usage=_USAGE)).encode()
    return _head(b"application/json", b"content-length: %d" % len(body)) + body


def stream() -> tuple[bytes, ...]:
    """The writes of an event stream of about 10.8 KB, one HTTP chunk each; the head goes with the first."""
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": f" {_WORDS[position : position + 16]}"} for position in range(50)]
    events = [_chunk([_choice(delta, None)]) for delta in deltas]
    events.append(_chunk([_choice({}, "stop")]))
    last = _chunk([], usage=_USAGE) + b"data: [DONE]\n\n"
    writes = [_framed(event) for event in (*events, last)]
    writes[0] = _head(b"text/event-stream; charset=utf-8", b"transfer-encoding: chunked") + writes[0]
    writes[-1] += b"0\r\n\r\n"
    return tuple(writes)


def _choice(delta: dict[str, object], finish: str | None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _document(kind: str, choices: list[dict[str, object]], **more: object) -> dict[str, object]:
    return {"id": _ID, "object": kind, "created": 1764547200, "model": "bench-base", "choices": choices, **more}


def _chunk(choices: list[dict[str, object]], **more: object) -> bytes:
    document = _document("chat.completion.chunk", choices, **more)
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _framed(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _head(content_type: bytes, framing: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nserver: stub\r\ncontent-type: " + content_type + b"\r\n" + framing + b"\r\n\r\n"
