"""The admin API, on its own port: how the controller steers a gateway, and how a person with an admin key does.

Two kinds of key open it: the one of the environment, which controller and gateways share, and API keys with the scope
`admin`, which are revoked one by one.
"""

import asyncio
import hmac
import json
from datetime import UTC, datetime
from urllib.parse import parse_qs

import msgspec
from pydantic import ValidationError

from pipeline.errors import DataError
from pipeline.gateway.arms import SessionArms
from pipeline.gateway.auth import KeyRing
from pipeline.gateway.errors import JSON, Refused, answer_refusal
from pipeline.gateway.exchange import Exchange
from pipeline.gateway.metrics import TEXT, Metrics
from pipeline.gateway.openapi import ADMIN_API, openapi_json
from pipeline.gateway.routes import RouteTable
from pipeline.records import Routes

_MOST_ARMS = 10_000
_OPEN = (("GET", b"/healthz"), ("GET", b"/metrics"), ("GET", b"/openapi.json"))
"""Served without a key."""


class AdminApi:
    """The handler of the admin port."""

    def __init__(self, admin_key: str, keys: KeyRing, table: RouteTable, arms: SessionArms, metrics: Metrics) -> None:
        self._expected = b"Bearer " + admin_key.encode()
        self._keys = keys
        self._table = table
        self._arms = arms
        self._metrics = metrics
        self._paths = {
            ("GET", b"/admin/routes"): self._get_routes,
            ("PUT", b"/admin/routes"): self._put_routes,
            ("POST", b"/admin/rollback"): self._roll_back,
            ("GET", b"/admin/arms"): self._get_arms,
            ("GET", b"/admin/trips"): self._get_trips,
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Serve one request."""
        try:
            if (exchange.method, exchange.path) in _OPEN:
                await self._serve_open(exchange)
                return
            if not self._may_steer(exchange.headers.get(b"authorization", b"")):
                raise Refused(401, "invalid_admin_key", "no valid admin key in 'Authorization: Bearer <key>'")
            serve = self._paths.get((exchange.method, exchange.path))
            if serve is None:
                raise _unknown(exchange, self.operations())
            status, body = serve(exchange)
            exchange.respond(status, JSON, body)
        except Refused as refused:
            answer_refusal(exchange, refused)

    async def _serve_open(self, exchange: Exchange) -> None:
        if exchange.path == b"/healthz":
            exchange.respond(200, JSON, b'{"status":"ok"}')
        elif exchange.path == b"/metrics":  # of this worker alone; the data port's come from any of them
            exchange.respond(200, TEXT, self._metrics.exposition())
        else:
            exchange.respond(200, JSON, await asyncio.to_thread(openapi_json, ADMIN_API))

    def operations(self) -> set[tuple[str, str]]:
        """Every method and path that is served."""
        return {(method, path.decode()) for method, path in (*self._paths, *_OPEN)}

    def _may_steer(self, authorization: bytes) -> bool:
        if hmac.compare_digest(authorization, self._expected):
            return True
        key = self._keys.find(authorization)
        return key is not None and key.admin

    def _get_routes(self, exchange: Exchange) -> tuple[int, bytes]:
        """The routes in force, with the defaults of businesses that were never routed."""
        routes = Routes(generation=self._table.routes.generation, routes=self._table.all())
        return 200, routes.model_dump_json().encode()

    def _put_routes(self, exchange: Exchange) -> tuple[int, bytes]:
        """200 when taken or held already, 409 when ours are newer, 422 when they are no routes."""
        try:
            routes = Routes.model_validate_json(exchange.body)
            taken = self._table.put(routes, datetime.now(UTC))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "body"
            raise Refused(422, "invalid_routes", f"{place}: {first['msg']}") from error
        except DataError as error:
            raise Refused(422, "invalid_routes", str(error)) from error
        except OSError as error:
            raise Refused(503, "not_kept", f"the routes could not be written: {error.strerror}") from error
        ours = self._table.routes.generation
        status = 409 if routes.generation < ours else 200
        return status, msgspec.json.encode({"generation": ours, "taken": taken})

    def _roll_back(self, exchange: Exchange) -> tuple[int, bytes]:
        """Stop the business's candidate here and now."""
        try:
            business = json.loads(exchange.body)["business"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Refused(422, "invalid_rollback", 'the body must be {"business": "<key>"}') from error
        if not isinstance(business, str) or self._table.route(business) is None:
            raise Refused(404, "unknown_business", "no such business")
        return 200, msgspec.json.encode({"business": business, "model": self._table.roll_back(business)})

    def _get_arms(self, exchange: Exchange) -> tuple[int, bytes]:
        """The conversations known here, latest used last."""
        business = parse_qs(exchange.query.decode("utf-8", "replace")).get("business", [""])[0]
        if self._table.route(business) is None:
            raise Refused(404, "unknown_business", "name a known business: /admin/arms?business=<key>")
        arms = [
            {
                "session": arm.session,
                "arm": arm.assignment.arm,
                "share": arm.assignment.share,
                "salt": arm.assignment.salt,
                "user_known": arm.user_known,
                "assigned_at": arm.assigned_at,
            }
            for arm in self._arms.all(business)[-_MOST_ARMS:]
        ]
        return 200, msgspec.json.encode({"business": business, "arms": arms})

    def _get_trips(self, exchange: Exchange) -> tuple[int, bytes]:
        """Candidates that this gateway stopped by itself."""
        trips = [trip.model_dump(mode="json") for trip in self._table.guard.trips()]
        return 200, msgspec.json.encode({"trips": trips})


def _unknown(exchange: Exchange, operations: set[tuple[str, str]]) -> Refused:
    allowed = sorted(method for method, path in operations if path.encode() == exchange.path)
    if not allowed:
        return Refused(404, "unknown_path", "no such path")
    refused = Refused(405, "method_not_allowed", f"use {', '.join(allowed)}")
    refused.headers = b"allow: %b\r\n" % ", ".join(allowed).encode()
    return refused
