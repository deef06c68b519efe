"""API keys: 256 random bits, stored as a SHA-256, each good for some businesses, for the admin API, or for both.

A plain hash is enough because the keys are random, not chosen by people. Gateways read the table again every two
seconds, so a revoked key stops working within that time.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.control import api_keys
from pipeline.errors import ConfigError

_BUSINESS = re.compile(r"[a-z0-9-]{1,40}")
_PREFIX = 16


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key without knowing the key."""

    name: str
    key_hash: str
    """SHA-256 of the key, 64 hex digits."""
    businesses: tuple[str, ...]
    created_at: datetime
    revoked_at: datetime | None = None
    admin: bool = False
    """Scope `admin`: it may read and steer at the admin API's port."""

    @property
    def prefix(self) -> str:
        """Names the key where its whole hash would be long: 64 bits of it."""
        return self.key_hash[:_PREFIX]


def hash_key(key: str | bytes) -> str:
    """What is stored of a key."""
    return hashlib.sha256(key.encode() if isinstance(key, str) else key).hexdigest()


def create_key(engine: Engine, name: str, businesses: Iterable[str], now: datetime, *, admin: bool = False) -> str:
    """Make a key and return it: the only time that anyone sees it.

    Raises:
        ConfigError: the name is taken or empty, a business is impossible, or the key would be good for nothing.
    """
    keys = sorted(set(businesses))
    if not name or len(name) > 80:
        raise ConfigError(f"API key name '{name}' must have 1 to 80 characters")
    if not keys and not admin:
        raise ConfigError(f"API key '{name}' would be good for nothing; give it a business, the scope admin, or both")
    if any(not _BUSINESS.fullmatch(business) for business in keys):
        raise ConfigError(f"API key '{name}': businesses {keys} must be business keys, such as 'support'")
    key = "tk-" + secrets.token_urlsafe(32)
    row = {"key_hash": hash_key(key), "name": name, "businesses": keys, "created_at": now, "admin": admin}
    try:
        with engine.begin() as connection:
            connection.execute(insert(api_keys).values(row))
    except IntegrityError as error:
        raise ConfigError(f"API key '{name}' exists already (revoked or not); choose another name") from error
    return key


def revoke_key(engine: Engine, name: str, now: datetime) -> None:
    """Make a key useless; revoking it again changes nothing.

    Raises:
        ConfigError: there is no such key.
    """
    with engine.begin() as connection:
        if connection.execute(select(api_keys.c.name).where(api_keys.c.name == name)).first() is None:
            raise ConfigError(f"no API key '{name}'; `tuneloop keys list` names all")
        connection.execute(
            update(api_keys).where(api_keys.c.name == name, api_keys.c.revoked_at.is_(None)).values(revoked_at=now)
        )


def list_keys(engine: Engine) -> tuple[ApiKey, ...]:
    """All keys, revoked ones too, by name."""
    with engine.connect() as connection:
        rows = connection.execute(select(api_keys).order_by(api_keys.c.name)).all()
    return tuple(
        ApiKey(
            name=row.name,
            key_hash=row.key_hash,
            businesses=tuple(row.businesses),
            created_at=row.created_at,
            revoked_at=row.revoked_at,
            admin=row.admin,
        )
        for row in rows
    )


class KeyRing:
    """The keys that are good now, held in memory."""

    def __init__(self, keys: Iterable[ApiKey] = ()) -> None:
        self._keys: dict[bytes, ApiKey] = {}
        self._by_prefix: dict[str, ApiKey] = {}
        self.replace(keys)

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """Take a new state of the table."""
        good = [key for key in keys if key.revoked_at is None]
        self._keys = {bytes.fromhex(key.key_hash): key for key in good}
        self._by_prefix = {key.prefix: key for key in good}

    def find(self, authorization: bytes) -> ApiKey | None:
        """The key of an `Authorization: Bearer …` header. Looking up a hash leaks no time about the key."""
        if authorization[:7].lower() != b"bearer ":
            return None
        return self._keys.get(hashlib.sha256(authorization[7:].strip()).digest())

    def find_by_prefix(self, prefix: str) -> ApiKey | None:
        """The key that `ApiKey.prefix` names, while it is good."""
        return self._by_prefix.get(prefix)
