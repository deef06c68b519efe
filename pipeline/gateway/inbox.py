"""`/v1/feedback`, `/v1/feedback-links` and what is posted to a link: taken when it is durable, not before."""

import time
from collections.abc import Sequence

import msgspec

from pipeline.errors import Transient
from pipeline.events.segment import SegmentWriter
from pipeline.gateway.auth import ApiKey, KeyRing
from pipeline.gateway.errors import JSON, Refused
from pipeline.gateway.exchange import Exchange, Headers
from pipeline.gateway.feedback import read_feedback
from pipeline.gateway.ids import Ids
from pipeline.gateway.limits import Admission
from pipeline.gateway.links import Link, make_token, read_link_request, read_linked_feedback, read_token
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.tasks import Clock
from pipeline.records import Feedback

ANY_ORIGIN: Headers = b"access-control-allow-origin: *\r\n"
"""A link may be used from any page: who holds it may use it, and no cookie or key goes with it."""
_PREFLIGHT: Headers = ANY_ORIGIN + (
    b"access-control-allow-methods: POST\r\n"
    b"access-control-allow-headers: content-type\r\n"
    b"access-control-max-age: 86400\r\n"
)


class Inbox:
    """Takes feedback."""

    def __init__(
        self,
        keys: KeyRing,
        admission: Admission,
        writer: SegmentWriter,
        table: RouteTable,
        ids: Ids,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._admission = admission
        self._writer = writer
        self._table = table
        self._ids = ids
        self._metrics = metrics
        self._clock = clock

    async def post(self, exchange: Exchange, key: ApiKey) -> None:
        """One feedback or a list, from an application."""
        events = read_feedback(exchange.body, key.businesses, self._businesses(), self._ids, self._clock())
        await self._keep(exchange, events)

    async def make_link(self, exchange: Exchange, key: ApiKey) -> None:
        """A token with which others may give feedback for one interaction."""
        link = read_link_request(exchange.body, key, self._businesses(), self._ids, self._clock())
        token = make_token(link, self._ids)
        body = {"token": token, "path": f"/v1/feedback/{token}", "expires_at": link.expires_at.isoformat()}
        exchange.respond(201, JSON, msgspec.json.encode(body))

    async def post_to_link(self, exchange: Exchange, token: bytes) -> None:
        """One feedback from whoever holds a link."""
        link = self._living(token)
        event = read_linked_feedback(exchange.body, link, self._ids, self._clock())
        await self._keep(exchange, (event,), ANY_ORIGIN)

    async def allow_post_to_link(self, exchange: Exchange, _token: bytes) -> None:
        """What a browser asks before it posts from a page of another origin."""
        exchange.respond(200, _PREFLIGHT, b"")

    def _living(self, token: bytes) -> Link:
        link = read_token(token, self._ids)
        if link is None:
            raise Refused(404, "unknown_link", "no such link")
        if self._clock() >= link.expires_at:
            raise Refused(410, "link_expired", f"this link ended at {link.expires_at.isoformat()}")
        maker = self._keys.find_by_prefix(link.maker)
        if maker is None or link.business not in maker.businesses:
            raise Refused(410, "link_revoked", "the key that this link was made with is revoked")
        return link

    async def _keep(self, exchange: Exchange, events: Sequence[Feedback], headers: Headers = b"") -> None:
        for business in {event.business for event in events}:
            self._admission.spend(business, time.perf_counter())
        lines = b"\n".join(b'{"feedback":%b}' % event.model_dump_json().encode() for event in events)
        try:
            await self._writer.append_durable(lines)
        except Transient as full:
            raise Refused(503, "not_durable", "the feedback could not be stored; send it again later") from full
        for event in events:
            label = (event.business, event.kind.value)
            self._metrics.feedback[label] = self._metrics.feedback.get(label, 0) + 1
        body = msgspec.json.encode({"accepted": len(events), "event_ids": [event.event_id for event in events]})
        exchange.respond(202, JSON + headers, body)

    def _businesses(self) -> frozenset[str]:
        return frozenset(route.business for route in self._table.all())
