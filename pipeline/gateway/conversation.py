"""Which conversation a request belongs to and whose it is, by salted hashes; remembered, because it takes five."""

from functools import lru_cache

import msgspec

from pipeline.gateway.exchange import header_text
from pipeline.gateway.ids import Ids
from pipeline.gateway.request import Asked, conversation_start
from pipeline.gateway.routing import assignment_hash, user_group

_REMEMBERED = 16_384


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


class Conversations:
    """Finds out a request's conversation."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._named = lru_cache(_REMEMBERED)(self._of_session)

    def of(self, business: str, salt: str, key_hash: str, headers: dict[bytes, bytes], asked: Asked) -> Conversation:
        """The conversation of a request.

        Args:
            salt: of the rollout that the conversation is, or will be, assigned by.
            key_hash: the API key's: part of what tells conversations apart that have no name.
        """
        user = header_text(headers, b"x-user-id") or asked.user or ""
        session_id = header_text(headers, b"x-session-id")
        if session_id:
            return self._named(business, salt, session_id, user)
        session = self._ids.session(business, "derived", key_hash, user, *conversation_start(asked))
        return self._of(business, salt, session, user, known=bool(user))

    def _of_session(self, business: str, salt: str, session_id: str, user: str) -> Conversation:
        return self._of(business, salt, self._ids.session(business, "named", session_id), user, known=True)

    def _of(self, business: str, salt: str, session: str, user: str, *, known: bool) -> Conversation:
        user_key = self._ids.user_key(business, user) if user else None
        position = assignment_hash(salt, user_key or session)
        return Conversation(session, known, user_key, position, user_group(position), int(session[:8], 16))
