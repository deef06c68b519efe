"""One gateway process: builds the parts, starts and stops them."""

import asyncio
import logging
import socket
import time
from pathlib import Path

from sqlalchemy import Engine

from pipeline.config import Config, Settings
from pipeline.events.segment import SegmentLog, SegmentWriter
from pipeline.gateway.admin import AdminApi
from pipeline.gateway.app import DataApi
from pipeline.gateway.arms import ArmStore, SessionArms
from pipeline.gateway.auth import KeyRing
from pipeline.gateway.completions import Completions
from pipeline.gateway.ids import Ids
from pipeline.gateway.inbox import Inbox
from pipeline.gateway.limits import Admission
from pipeline.gateway.lookup import Lookups
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.recorder import Recorder
from pipeline.gateway.relay import Relay
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.server import Limits, Server
from pipeline.gateway.tasks import (
    ARMS_EVERY_S,
    KEYS_EVERY_S,
    PURGE_EVERY_S,
    ROUTES_EVERY_S,
    ArmSync,
    follow_keys,
    poll_routes,
    repeat,
    utc_now,
)
from pipeline.gateway.upstream import Engines, Timeouts

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
        self._table = RouteTable(config, state_dir / "gateway")
        self._writer = SegmentWriter(SegmentLog(state_dir / "events" / "segments", worker))
        self._engines = Engines(
            Timeouts(
                connect=section.connect_timeout_s,
                first_byte=section.first_token_timeout_s,
                between=section.between_tokens_timeout_s,
            )
        )
        self._keys = KeyRing()
        metrics = Metrics()
        ids = Ids(settings.user_salt.get_secret_value())
        arms = SessionArms()
        store = ArmStore(database)
        self._arm_sync = ArmSync(arms, store, utc_now)
        admission = Admission(
            {key: business.limits for key, business in config.businesses.items()},
            section.max_running,
            1.0 / section.workers,
            time.perf_counter(),
        )
        completions = Completions(
            ids=ids,
            table=self._table,
            arms=arms,
            store=store,
            admission=admission,
            queue_timeout_s=section.queue_timeout_s,
            relay=Relay(self._engines, metrics),
            recorder=Recorder(self._writer, metrics, config.system.base_model.id),
            metrics=metrics,
            engine_key=settings.engine_key.get_secret_value(),
        )
        inbox = Inbox(self._keys, self._writer, self._table, ids, metrics, utc_now)
        lookups = Lookups(state_dir / "events", ids, utc_now)
        self._data_api = DataApi(self._keys, completions, inbox, lookups, self._writer, self._table, metrics)
        limits = Limits(body_bytes=int(section.max_body_mb * 1024 * 1024))
        self._data_server = Server(self._data_api, limits)
        self._admin_server = Server(AdminApi(self._admin_key, self._keys, self._table, arms), limits)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, data_socket: socket.socket, admin_socket: socket.socket) -> None:
        """Read keys and arms, then serve."""
        await follow_keys(self._keys, self._database)
        await self._arm_sync.once()
        steps = (
            (KEYS_EVERY_S, "API keys", lambda: follow_keys(self._keys, self._database)),
            (ARMS_EVERY_S, "session arms", self._arm_sync.once),
            (PURGE_EVERY_S, "old session arms", self._arm_sync.purge),
            (
                ROUTES_EVERY_S,
                "routes",
                lambda: poll_routes(self._table, self._engines, self._controller, self._admin_key),
            ),
        )
        self._tasks = [asyncio.create_task(repeat(every_s, what, step)) for every_s, what, step in steps]
        await self._admin_server.listen(admin_socket)
        await self._data_server.listen(data_socket)
        self._data_api.ready = True

    async def stop(self) -> None:
        """Let answers finish (at most `DRAIN_S`), then write everything down."""
        self._data_api.ready = False
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
        lost = await self._writer.close()
        if lost:
            log.error("%d lines of the event log could not be written", lost)
