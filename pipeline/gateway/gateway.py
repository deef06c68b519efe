"""One gateway process: builds the parts, starts and stops them."""

import asyncio
import logging
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from pipeline.config import Config, GatewayConfig, Settings
from pipeline.events.segment import SegmentLog, SegmentWriter
from pipeline.gateway.admin import AdminApi
from pipeline.gateway.app import DataApi
from pipeline.gateway.arms import DatabaseArmStore, SessionArms
from pipeline.gateway.auth import KeyRing
from pipeline.gateway.budget import TokenBudget
from pipeline.gateway.claims import Claims
from pipeline.gateway.completions import Completions
from pipeline.gateway.errors import JSON
from pipeline.gateway.exchange import Headers
from pipeline.gateway.ids import Ids
from pipeline.gateway.inbox import Inbox
from pipeline.gateway.limits import Admission
from pipeline.gateway.lookup import Lookups
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.recorder import Recorder
from pipeline.gateway.relay import Relay
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.server import Limits, Server
from pipeline.gateway.shadow import Shadows
from pipeline.gateway.tasks import (
    ARMS_EVERY_S,
    KEYS_EVERY_S,
    PURGE_EVERY_S,
    ROUTES_EVERY_S,
    USAGE_EVERY_S,
    ArmSync,
    UsageSync,
    follow_keys,
    poll_routes,
    repeat,
    utc_now,
)
from pipeline.gateway.upstream import Engines, Timeouts

if TYPE_CHECKING:  # OpenTelemetry and Redis are loaded only where they are configured
    from pipeline.gateway.shared import Shared
    from pipeline.gateway.tracing import Tracing

log = logging.getLogger(__name__)

DRAIN_S = 30.0


class Gateway:
    """Make it inside a running event loop.

    Args:
        worker: names this process's event segments; no two processes may share it.

    Raises:
        ConfigError: another process uses the worker name.
    """

    def __init__(self, config: Config, settings: Settings, state_dir: Path, worker: str, database: Engine) -> None:
        section = config.system.gateway
        self._database = database
        self._controller = f"http://{config.system.controller.host}:{config.system.controller.port}"
        self._admin_key = settings.admin_key.get_secret_value()
        self._table = RouteTable(config, state_dir / "gateway" / worker)
        self._writer = SegmentWriter(SegmentLog(state_dir / "events" / "segments", worker))
        self._engines = Engines(
            Timeouts(
                connect=section.connect_timeout_s,
                first_byte=section.first_token_timeout_s,
                between=section.between_tokens_timeout_s,
            )
        )
        self._keys = KeyRing()
        self._metrics = metrics = Metrics()
        metrics.fill_gauges = self._fill_gauges
        ids = Ids(settings.user_salt.get_secret_value())
        arms = SessionArms()
        shared = _shared(settings)
        store = shared.arms if shared else DatabaseArmStore(database)
        self._arm_sync = ArmSync(arms, store, utc_now)
        self._admission = admission = Admission(
            {key: business.limits for key, business in config.businesses.items()},
            section.max_running,
            time.perf_counter(),
            share=1.0 / section.workers,
            rate_share=1.0 if shared else 1.0 / section.workers,
        )
        self._usage_sync = UsageSync(admission, shared.usage, time.perf_counter) if shared else None
        self._tracing = _tracing(section, worker)
        engine_headers = _engine_headers(settings)
        relay = Relay(self._engines, metrics)
        shadows = {key: about.rollout.shadow for key, about in config.businesses.items() if about.rollout.shadow}
        self._shadows = Shadows(
            shadows,
            self._engines,
            self._table,
            admission,
            relay.in_flight,
            TokenBudget(
                {key: one.tokens_per_hour // section.workers for key, one in shadows.items()},
                state_dir / "gateway" / worker / "shadow.json",
            ),
            self._writer,
            metrics,
            headers=engine_headers,
            busy_at=section.shadow_busy_at,
            cache_salt=ids.cache_salt,
            clock=utc_now,
        )
        completions = Completions(
            ids=ids,
            table=self._table,
            arms=arms,
            claims=Claims(arms, store),
            admission=admission,
            queue_timeout_s=section.queue_timeout_s,
            relay=relay,
            recorder=Recorder(self._writer, metrics, config.system.base_model.id),
            shadows=self._shadows,
            metrics=metrics,
            tracing=self._tracing,
            engine_headers=engine_headers,
        )
        inbox = Inbox(self._keys, admission, self._writer, self._table, ids, metrics, utc_now)
        lookups = Lookups(state_dir / "events", ids, utc_now)
        self._data_api = DataApi(self._keys, completions, inbox, lookups, self._writer, self._table, metrics)
        limits = Limits(body_bytes=int(section.max_body_mb * 1024 * 1024))
        self._data_server = Server(self._data_api, limits)
        self._admin_server = Server(AdminApi(self._admin_key, self._keys, self._table, arms, metrics), limits)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, data_socket: socket.socket, admin_socket: socket.socket) -> None:
        """Read keys and arms, then serve."""
        await follow_keys(self._keys, self._database)
        try:
            await self._arm_sync.once()
        except Exception as error:  # the hash gives the same arm in all but a step-up's first moments
            log.warning("session arms: %s; served on with the hash", type(error).__name__)
        steps = [
            (KEYS_EVERY_S, "API keys", lambda: follow_keys(self._keys, self._database)),
            (ARMS_EVERY_S, "session arms", self._arm_sync.once),
            (PURGE_EVERY_S, "old session arms", self._arm_sync.purge),
            (
                ROUTES_EVERY_S,
                "routes",
                lambda: poll_routes(self._table, self._engines, self._controller, self._admin_key),
            ),
        ]
        if self._usage_sync:
            steps.append((USAGE_EVERY_S, "shared limits", self._usage_sync.once))
        self._tasks = [asyncio.create_task(repeat(every_s, what, step)) for every_s, what, step in steps]
        await self._admin_server.listen(admin_socket)
        await self._data_server.listen(data_socket)
        self._data_api.ready = True

    async def stop(self) -> None:
        """Let answers finish (at most `DRAIN_S`), then write everything down."""
        self._data_api.ready = False
        await self._shadows.close()
        cut = await self._data_server.drain(DRAIN_S)
        if cut:
            log.warning("%d answers were cut: they took longer than %.0f s", cut, DRAIN_S)
        await self._admin_server.drain(1.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._arm_sync.once()
        except Exception as error:
            log.warning("session arms not written: %s", type(error).__name__)
        self._engines.close()
        if self._tracing:
            await asyncio.to_thread(self._tracing.close)
        lost = await self._writer.close()
        if lost:
            log.error("%d lines of the event log could not be written", lost)

    def _fill_gauges(self) -> None:
        self._metrics.routes_generation = self._table.routes.generation
        self._metrics.waiting = self._admission.waiting()
        self._metrics.log_gauges = {
            "queued_bytes": self._writer.queued_bytes,
            "lag_seconds": self._writer.lag_s,
            "dropped_lines": self._writer.dropped,
            "failing": self._writer.failing,
        }


def _engine_headers(settings: Settings) -> Headers:
    headers = JSON + b"accept-encoding: identity\r\n"
    if key := settings.engine_key.get_secret_value():
        headers += b"authorization: Bearer %b\r\n" % key.encode()
    return headers


def _shared(settings: Settings) -> "Shared | None":
    url = settings.redis_url.get_secret_value()
    if not url:
        return None
    from pipeline.gateway.shared import Shared

    return Shared(url)


def _tracing(section: GatewayConfig, worker: str) -> "Tracing | None":
    if section.tracing is None:
        return None
    from pipeline.gateway.tracing import Tracing

    return Tracing(section.tracing, worker)
