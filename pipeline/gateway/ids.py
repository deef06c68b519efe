"""Ids and salted hashes.

An interaction id is a UUIDv7 whose last 30 random bits are a keyed tag over the rest and the business. So any gateway
can tell, weeks later and without asking anyone, whether an id belongs to a business.
"""

import hashlib
import os
import random
import re
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

_TAG_BITS = 30
_TAG_MASK = (1 << _TAG_BITS) - 1
_VARIANT = 0b10 << 62
_VERSION = 7 << 12
_NODE_MASK = (1 << 48) - 1
_HALVES = struct.Struct(">QQ")
_ENCODE = msgspec.json.Encoder().encode
_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)


class Ids:
    """All hashes that are keyed with the user salt; equal salts give equal ids on every gateway."""

    def __init__(self, salt: str, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._key = hashlib.sha256(salt.encode()).digest()
        self._tags = hashlib.blake2b(digest_size=4, key=self._key, person=b"interaction")
        self._clock_ns = clock_ns
        self._random = random.Random(os.urandom(32)).getrandbits  # tells ids apart; what proves them is the tag

    def user_key(self, business: str, user_id: str) -> str:
        """What stands for a user in the log: 32 hex digits, different in each business."""
        return self._hash(b"user", business, user_id)

    def session(self, business: str, *parts: str) -> str:
        """What stands for a conversation: 32 hex digits."""
        return self._hash(b"session", business, *parts)

    def cache_salt(self, business: str) -> str:
        """Keeps a business's prefix cache on the engines apart from all others'."""
        return self._hash(b"cache", business)

    def new_interaction(self, business: str) -> str:
        """A fresh interaction id (UUIDv7, RFC 9562) that carries the business's tag."""
        millis, rest = divmod(self._clock_ns(), 1_000_000)
        fraction = rest * 4096 // 1_000_000  # RFC 9562 method 3: ids of one process sort by time below the millisecond
        high = millis << 16 | _VERSION | fraction
        low = _VARIANT | self._random(32) << _TAG_BITS
        low |= self._tag(business, high, low)
        return f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-{high & 0xFFFF:04x}-{low >> 48:04x}-{low & _NODE_MASK:012x}"

    def belongs(self, interaction_id: str, business: str) -> bool:
        """Whether a gateway made this id for this business."""
        if not _FORM.fullmatch(interaction_id):
            return False
        digits = interaction_id.replace("-", "")
        high, low = int(digits[:16], 16), int(digits[16:], 16)
        return low & _TAG_MASK == self._tag(business, high, low & ~_TAG_MASK)

    def link_signature(self, payload: bytes) -> bytes:
        """Proves that a gateway of ours wrote a feedback link: 128 bits."""
        return hashlib.blake2b(payload, digest_size=16, key=self._key, person=b"feedback-link").digest()

    def _tag(self, business: str, high: int, low: int) -> int:
        """Over the two halves of an id whose tag bits are 0."""
        tag = self._tags.copy()  # with the key in it already: half the work
        tag.update(b"%b%b" % (business.encode(), _HALVES.pack(high, low)))
        return int.from_bytes(tag.digest(), "big") & _TAG_MASK

    def _hash(self, purpose: bytes, *parts: str) -> str:
        # As a JSON list, so that ("ab", "c") and ("a", "bc") differ.
        return hashlib.blake2b(_ENCODE(parts), digest_size=16, key=self._key, person=purpose).hexdigest()


def made_at(interaction_id: str) -> datetime:
    """When an id for which `belongs` holds was made."""
    return datetime.fromtimestamp(int(interaction_id[:8] + interaction_id[9:13], 16) / 1000, UTC)
