"""The requests that are sent: 2,048 distinct ones of about 1.25 KB, over 16 businesses with a key each."""

import json
import random
from collections.abc import Sequence

BUSINESSES = tuple(f"shop-{number:02d}" for number in range(16))
DISTINCT = 2048
_CHINESE = 4
"""So many of the businesses write Chinese: UTF-8 has to be checked, ASCII has not."""
_VOCABULARY = (
    "order refund parcel invoice address return delivery account payment size colour exchange voucher warehouse "
    "courier tracking damaged missing late wrong please tell me when will the my was not is it how can you"
)
_WORDS = tuple(_VOCABULARY.split())
_CHARACTERS = "订单退款快递发票地址换货尺码颜色优惠券什么时候到没有收到商品破损怎么办请问可以吗谢谢客服"


def build_requests(host: str, keys: Sequence[str], *, stream: bool, pace_us: int) -> list[bytes]:
    """Whole HTTP requests. The same arguments give the same bytes, so every contestant is asked the same.

    Args:
        keys: one for each of `BUSINESSES`, or one for all.
        pace_us: microseconds between the pieces of the stub's stream.
    """
    source = random.Random(20260301)
    return [_request(source, number, host, keys, stream, pace_us) for number in range(DISTINCT)]


def _request(source: random.Random, number: int, host: str, keys: Sequence[str], stream: bool, pace_us: int) -> bytes:
    shop = number % len(BUSINESSES)
    chinese = shop >= len(BUSINESSES) - _CHINESE
    body: dict[str, object] = {
        "model": BUSINESSES[shop],
        "messages": [
            {"role": "system", "content": "You are the support of an online shop. " + _text(source, 430, chinese)},
            {"role": "user", "content": _text(source, 180, chinese)},
            {"role": "assistant", "content": _text(source, 180, chinese)},
            {"role": "user", "content": f"{_text(source, 160, chinese)} ({number})"},
        ],
        "temperature": 0.7,
        "max_tokens": 200,
        "seed": pace_us,
        "user": f"user-{source.getrandbits(48):012x}",
    }
    if stream:
        body["stream"] = True
        if number % 2:  # half of the clients want the usage; for the others a gateway has to take it out again
            body["stream_options"] = {"include_usage": True}
    data = json.dumps(body, ensure_ascii=False).encode()
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: {host}",
        f"Authorization: Bearer {keys[shop % len(keys)]}",
        "Content-Type: application/json",
        "Accept: application/json",
        "User-Agent: OpenAI/Python 3.57.0",
        f"X-Session-Id: session-{source.getrandbits(64):016x}",
        f"Content-Length: {len(data)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def _text(source: random.Random, size: int, chinese: bool) -> str:
    """About `size` bytes of UTF-8."""
    if chinese:
        return "".join(source.choices(_CHARACTERS, k=size // 3))
    text = " ".join(source.choices(_WORDS, k=size // 5))
    return text[:size]
