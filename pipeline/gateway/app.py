"""The data API: which path does what, and for whom. `openapi.yaml` describes it, and a test holds both together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from pipeline.events.segment import SegmentWriter
from pipeline.gateway.auth import ApiKey, KeyRing
from pipeline.gateway.completions import Completions
from pipeline.gateway.errors import JSON, Refused, answer_refusal
from pipeline.gateway.exchange import Exchange
from pipeline.gateway.inbox import ANY_ORIGIN, Inbox
from pipeline.gateway.lookup import Lookups
from pipeline.gateway.metrics import TEXT, Metrics
from pipeline.gateway.openapi import DATA_API, openapi_json
from pipeline.gateway.routes import RouteTable

_COMPLETIONS = (b"/v1/chat/completions", b"/v1/completions")
_LINKS = b"/v1/feedback/"

Serve = Callable[[Exchange], Awaitable[None]]
ServeNamed = Callable[[Exchange, bytes], Awaitable[None]]
_One = TypeVar("_One")


class DataApi:
    """The handler of the data port."""

    def __init__(
        self,
        keys: KeyRing,
        completions: Completions,
        inbox: Inbox,
        lookups: Lookups,
        writer: SegmentWriter,
        table: RouteTable,
        metrics: Metrics,
    ) -> None:
        self._keys = keys
        self._completions = completions
        self._inbox = inbox
        self._lookups = lookups
        self._writer = writer
        self._table = table
        self._metrics = metrics
        self._paths: dict[bytes, dict[str, Serve]] = {
            b"/v1/feedback": {"POST": self._feedback},
            b"/v1/feedback-links": {"POST": self._feedback_links},
            b"/v1/models": {"GET": self._models},
            b"/openapi.json": {"GET": self._described},
            b"/healthz": {"GET": self._healthy},
            b"/readyz": {"GET": self._ready},
            b"/metrics": {"GET": self._measured},
        }
        self._below: dict[bytes, tuple[str, dict[str, ServeNamed]]] = {
            b"/v1/interactions/": ("{interaction_id}", {"GET": self._interaction}),
            _LINKS: ("{token}", {"POST": inbox.post_to_link, "OPTIONS": inbox.allow_post_to_link}),
        }
        """Paths whose last part is a name: what it names, and who serves it."""
        self.ready = False
        """Keys and routes have been read, and the gateway is not stopping."""

    async def __call__(self, exchange: Exchange) -> None:
        """Serve one request."""
        try:
            if exchange.path in _COMPLETIONS:
                if exchange.method != "POST":
                    raise _not_allowed(("POST",))
                await self._completions.serve(exchange, self._authorise(exchange))
                return
            methods = self._paths.get(exchange.path)
            if methods is not None:
                await _pick(exchange, methods)(exchange)
                return
            folder, slash, name = exchange.path.rpartition(b"/")
            _, named = self._below.get(folder + slash, ("", None))
            if named is None or not name:
                raise Refused(404, "unknown_path", "no such path")
            await _pick(exchange, named)(exchange, name)
        except Refused as refused:
            self._metrics.refuse(refused.business, refused.code)
            if exchange.path.startswith(_LINKS):
                refused.headers += ANY_ORIGIN
            answer_refusal(exchange, refused)

    def operations(self) -> set[tuple[str, str]]:
        """Every method and path that is served."""
        paths: dict[str, list[str]] = {path.decode(): ["POST"] for path in _COMPLETIONS}
        paths |= {path.decode(): list(methods) for path, methods in self._paths.items()}
        paths |= {folder.decode() + name: list(methods) for folder, (name, methods) in self._below.items()}
        return {(method, path) for path, methods in paths.items() for method in methods}

    def _authorise(self, exchange: Exchange) -> ApiKey:
        key = self._keys.find(exchange.headers.get(b"authorization", b""))
        if key is None:
            raise Refused(401, "invalid_api_key", "no valid API key in 'Authorization: Bearer <key>'")
        if not key.businesses:
            raise Refused(403, "no_business", "this key is for the admin API; it has no business")
        return key

    async def _feedback(self, exchange: Exchange) -> None:
        await self._inbox.post(exchange, self._authorise(exchange))

    async def _feedback_links(self, exchange: Exchange) -> None:
        await self._inbox.make_link(exchange, self._authorise(exchange))

    async def _interaction(self, exchange: Exchange, name: bytes) -> None:
        await self._lookups.serve(exchange, self._authorise(exchange), name)

    async def _models(self, exchange: Exchange) -> None:
        key = self._authorise(exchange)
        created = int(key.created_at.timestamp())
        models = [
            {"id": business, "object": "model", "created": created, "owned_by": "tuneloop"}
            for business in key.businesses
            if self._table.route(business) is not None
        ]
        exchange.respond(200, JSON, msgspec.json.encode({"object": "list", "data": models}))

    async def _described(self, exchange: Exchange) -> None:
        exchange.respond(200, JSON, await asyncio.to_thread(openapi_json, DATA_API))

    async def _healthy(self, exchange: Exchange) -> None:
        exchange.respond(200, JSON, b'{"status":"ok"}')

    async def _ready(self, exchange: Exchange) -> None:
        ready = self.ready and not self._writer.failing
        body = {"status": "ready" if ready else "not ready", "event_log": "failing" if self._writer.failing else "ok"}
        exchange.respond(200 if ready else 503, JSON, msgspec.json.encode(body))

    async def _measured(self, exchange: Exchange) -> None:
        exchange.respond(200, TEXT, self._metrics.exposition())


def _pick(exchange: Exchange, methods: Mapping[str, _One]) -> _One:
    """Whoever serves the request's method."""
    method = "GET" if exchange.method == "HEAD" else exchange.method
    if method not in methods:
        raise _not_allowed(methods)
    return methods[method]


def _not_allowed(methods: Iterable[str]) -> Refused:
    allowed = ", ".join(methods)
    refused = Refused(405, "method_not_allowed", f"use {allowed}")
    refused.headers = b"allow: %b\r\n" % allowed.encode()
    return refused
