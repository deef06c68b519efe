"""The data API: which path does what, and for whom."""

import msgspec

from pipeline.errors import Transient
from pipeline.events.segment import SegmentWriter
from pipeline.gateway.auth import ApiKey, KeyRing
from pipeline.gateway.completions import Completions
from pipeline.gateway.errors import JSON, Refused, answer_refusal
from pipeline.gateway.feedback import read_feedback
from pipeline.gateway.ids import Ids
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.server import Exchange
from pipeline.gateway.tasks import Clock

_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_COMPLETIONS = {b"/v1/chat/completions": "/v1/chat/completions", b"/v1/completions": "/v1/completions"}


class DataApi:
    """The handler of the data port."""

    def __init__(
        self,
        keys: KeyRing,
        completions: Completions,
        writer: SegmentWriter,
        table: RouteTable,
        ids: Ids,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._completions = completions
        self._writer = writer
        self._table = table
        self._ids = ids
        self._metrics = metrics
        self._clock = clock
        self._others = {
            b"/v1/feedback": ("POST", self._feedback),
            b"/v1/models": ("GET", self._models),
            b"/healthz": ("GET", self._healthy),
            b"/readyz": ("GET", self._ready),
            b"/metrics": ("GET", self._measured),
        }
        self.ready = False
        """Keys and routes have been read, and the gateway is not stopping."""

    async def __call__(self, exchange: Exchange) -> None:
        """Serve one request."""
        try:
            path = _COMPLETIONS.get(exchange.path)
            if path is not None:
                _only(exchange, "POST")
                await self._completions.serve(exchange, path, self._authorise(exchange))
                return
            method, serve = self._others.get(exchange.path, ("", None))
            if serve is None:
                raise Refused(404, "unknown_path", "no such path")
            _only(exchange, method)
            await serve(exchange)
        except Refused as refused:
            self._metrics.refuse(refused.business, refused.code)
            answer_refusal(exchange, refused)

    def _authorise(self, exchange: Exchange) -> ApiKey:
        key = self._keys.find(exchange.headers.get(b"authorization", b""))
        if key is None:
            raise Refused(401, "invalid_api_key", "no valid API key in 'Authorization: Bearer <key>'")
        return key

    async def _feedback(self, exchange: Exchange) -> None:
        key = self._authorise(exchange)
        known = frozenset(route.business for route in self._table.all())
        events = read_feedback(exchange.body, key.businesses, known, self._ids, self._clock())
        lines = b"\n".join(b'{"feedback":%b}' % event.model_dump_json().encode() for event in events)
        try:
            await self._writer.append_durable(lines)
        except Transient as full:
            raise Refused(503, "not_durable", "the feedback could not be stored; send it again later") from full
        for event in events:
            label = (event.business, event.kind.value)
            self._metrics.feedback[label] = self._metrics.feedback.get(label, 0) + 1
        body = msgspec.json.encode({"accepted": len(events), "event_ids": [event.event_id for event in events]})
        exchange.respond(202, (JSON,), body)

    async def _models(self, exchange: Exchange) -> None:
        key = self._authorise(exchange)
        created = int(key.created_at.timestamp())
        models = [
            {"id": business, "object": "model", "created": created, "owned_by": "tuneloop"}
            for business in key.businesses
            if self._table.route(business) is not None
        ]
        exchange.respond(200, (JSON,), msgspec.json.encode({"object": "list", "data": models}))

    async def _healthy(self, exchange: Exchange) -> None:
        exchange.respond(200, (JSON,), b'{"status":"ok"}')

    async def _ready(self, exchange: Exchange) -> None:
        ready = self.ready and not self._writer.failing
        body = {"status": "ready" if ready else "not ready", "event_log": "failing" if self._writer.failing else "ok"}
        exchange.respond(200 if ready else 503, (JSON,), msgspec.json.encode(body))

    async def _measured(self, exchange: Exchange) -> None:
        self._metrics.routes_generation = self._table.routes.generation
        self._metrics.waiting = self._completions.waiting()
        self._metrics.log_gauges = {
            "queued_bytes": self._writer.queued_bytes,
            "lag_seconds": self._writer.lag_s,
            "dropped_lines": self._writer.dropped,
            "failing": self._writer.failing,
        }
        exchange.respond(200, (_TEXT,), self._metrics.exposition())


def _only(exchange: Exchange, method: str) -> None:
    if exchange.method != method and not (method == "GET" and exchange.method == "HEAD"):
        refused = Refused(405, "method_not_allowed", f"use {method}")
        refused.headers = ((b"allow", method.encode()),)
        raise refused
