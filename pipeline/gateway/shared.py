"""What gateways of several hosts share through one Redis: session arms, and what each business has used.

On a request's way it is asked only for conversations that are new while a rollout is under way; else each gateway
exchanges with it off the way. Without it every gateway goes on with what it knows. Let it keep its data (`appendonly
yes`) and evict nothing: conversations would change their arm.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import redis

from pipeline.gateway.arms import LIFE, SessionArm
from pipeline.gateway.limits import Usage
from pipeline.gateway.routing import Assignment
from pipeline.records import Arm

_ARM = "{tuneloop}:arm:"
_ARMS = "{tuneloop}:arms"
_USED = "{tuneloop}:used:"
_BUSINESSES = "{tuneloop}:used"
_STREAM_LENGTH = 500_000
_PAGE = 1000

# The first assignment of a conversation stands: only that one goes into the stream that all gateways read.
_ADD_ARMS = """
for i = 3, #ARGV, 2 do
  if redis.call('SET', ARGV[i], ARGV[i + 1], 'NX', 'EX', ARGV[1]) then
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'arm', ARGV[i + 1])
  end
end
"""


class _Stored(msgspec.Struct, array_like=True):
    business: str
    session: str
    salt: str
    arm: Arm
    share: float
    user_known: bool
    assigned_at: datetime


_decode = msgspec.json.Decoder(_Stored).decode


class Shared:
    """Both stores on one Redis. A call gives up after two seconds: the gateway goes on without.

    Args:
        url: such as `redis://:password@host:6379/0`.
    """

    def __init__(self, url: str) -> None:
        client = redis.Redis.from_url(url, socket_timeout=2.0, socket_connect_timeout=2.0)
        self.arms = RedisArmStore(client)
        self.usage = RedisUsageStore(client)


class RedisArmStore:
    """An `ArmStore`. The cursor is a position in the stream of assignments, so no host's clock matters."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._add_new = client.register_script(_ADD_ARMS)

    def exchange(
        self, rows: list[SessionArm], cursor: str | None, now: datetime, limit: int
    ) -> tuple[list[SessionArm], str]:
        """See `ArmStore`."""
        if rows:
            self._add(rows)
        entries: Any = self._client.xrevrange(_ARMS, "+", "-" if cursor is None else f"({cursor}", count=limit)
        known = [_from_text(fields[b"arm"]) for _, fields in reversed(entries)]
        living = [arm for arm in known if arm.assigned_at >= now - LIFE]
        return living, entries[0][0].decode() if entries else cursor or "0-0"

    def claim(self, rows: list[SessionArm]) -> list[SessionArm]:
        """See `ArmStore`."""
        self._add(rows)
        texts: Any = self._client.mget([_key(row.business, row.session) for row in rows])
        return [row if text is None else _from_text(text) for row, text in zip(rows, texts, strict=True)]

    def _add(self, rows: list[SessionArm]) -> None:
        texts: list[Any] = []
        for row in rows:
            texts += (_key(row.business, row.session), _encode(row))
        self._add_new(keys=[_ARMS], args=[int(LIFE.total_seconds()), _STREAM_LENGTH, *texts])

    def purge(self, before: datetime) -> None:
        """Drop what is over from the stream; the keys expire by themselves."""
        self._client.xtrim(_ARMS, minid=f"{int(before.timestamp() * 1000)}-0")

    def forget(self, business: str, goes: Callable[[str], bool]) -> int:
        """See `ArmStore`."""
        gone: set[str] = set()
        after = "-"
        while entries := self._page(after):
            for position, fields in entries:
                arm = _from_text(fields[b"arm"])
                if arm.business == business and goes(arm.session):
                    self._client.xdel(_ARMS, position)
                    gone.add(arm.session)
            after = f"({entries[-1][0].decode()}"
        prefix = _key(business, "")
        for name in self._client.scan_iter(match=f"{prefix}*", count=_PAGE):
            session = name.decode().removeprefix(prefix)
            if goes(session):
                self._client.delete(name)
                gone.add(session)
        return len(gone)

    def _page(self, after: str) -> Any:
        return self._client.xrange(_ARMS, min=after, count=_PAGE)


class RedisUsageStore:
    """A `UsageStore`: counters that only rise."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def add(self, used: Mapping[str, Usage]) -> dict[str, Usage]:
        """See `UsageStore`."""
        with self._client.pipeline(transaction=True) as pipe:
            for business, usage in used.items():
                pipe.sadd(_BUSINESSES, business)
                pipe.hincrby(_USED + business, "requests", usage.requests)
                pipe.hincrby(_USED + business, "tokens", usage.tokens)
            pipe.smembers(_BUSINESSES)
            businesses = sorted(name.decode() for name in pipe.execute()[-1])
        with self._client.pipeline(transaction=True) as pipe:
            for business in businesses:
                pipe.hmget(_USED + business, "requests", "tokens")
            counts = pipe.execute()
        return {name: Usage(int(one[0]), int(one[1])) for name, one in zip(businesses, counts, strict=True)}


def _key(business: str, session: str) -> str:
    return f"{_ARM}{business}:{session}"


def _encode(row: SessionArm) -> bytes:
    one = row.assignment
    stored = _Stored(row.business, row.session, one.salt, one.arm, one.share, row.user_known, row.assigned_at)
    return msgspec.json.encode(stored)


def _from_text(text: bytes) -> SessionArm:
    one = _decode(text)
    assignment = Assignment(salt=one.salt, arm=one.arm, share=one.share)
    return SessionArm(one.business, one.session, assignment, one.user_known, one.assigned_at.astimezone(UTC))
