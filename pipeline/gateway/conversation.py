"""Which conversation a request belongs to and whose it is, by salted hashes; remembered, because it takes five."""

from functools import lru_cache

import msgspec

from pipeline.gateway.auth import ApiKey
from pipeline.gateway.exchange import header_text
from pipeline.gateway.ids import Ids
from pipeline.gateway.request import Asked, conversation_start
from pipeline.gateway.routing import assignment_hash, user_group
from pipeline.gateway.served import ServedRoute

_REMEMBERED = 8_192


class Conversation(msgspec.Struct, frozen=True):
    """A conversation under a rollout's salt."""

    session: str
    session_known: bool
    """The client named the session or the user; else strangers who begin alike look like one conversation."""
    user_key: str | None
    position: float
    """The assignment hash, in [0, 1)."""
    user_group: str
    affinity: int
    """The same number through a conversation."""

    def under(self, salt: str) -> "Conversation":
        """The same conversation under another rollout's salt."""
        position = assignment_hash(salt, self.user_key or self.session)
        return msgspec.structs.replace(self, position=position, user_group=user_group(position))


class Conversations:
    """Finds out a request's conversation."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._named = lru_cache(_REMEMBERED)(self._of_session)

    def of(self, route: ServedRoute, key: ApiKey, headers: dict[bytes, bytes], asked: Asked) -> Conversation:
        """The conversation of a request, under the route's salt."""
        user = header_text(headers, b"x-user-id") or asked.user or ""
        session_id = header_text(headers, b"x-session-id")
        if session_id:
            return self._named(route.business, route.salt, session_id, user)
        session = self._ids.session(route.business, "derived", key.key_hash, user, *conversation_start(asked))
        return self._of(route.business, route.salt, session, user, known=bool(user))

    def _of_session(self, business: str, salt: str, session_id: str, user: str) -> Conversation:
        return self._of(business, salt, self._ids.session(business, "named", session_id), user, known=True)

    def _of(self, business: str, salt: str, session: str, user: str, *, known: bool) -> Conversation:
        user_key = self._ids.user_key(business, user) if user else None
        position = assignment_hash(salt, user_key or session)
        return Conversation(session, known, user_key, position, user_group(position), int(session[:8], 16))
