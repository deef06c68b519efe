"""The controller as a process: its loop, and the HTTP API that wakes it, asks it and stops canaries.

A webhook says nothing that is believed: it only wakes the loop, which then reads the registry. The loop does the same
by itself every few seconds, so a lost webhook costs time and nothing else.
"""

import argparse
import base64
import hashlib
import hmac
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from flows.controller.controller import Controller
from flows.controller.gateways import Gateways
from flows.controller.status import describe
from pipeline.config import Config, Settings, load_config, load_settings
from pipeline.errors import ConfigError, PipelineError, RegistryError
from pipeline.records import ModelVersion
from pipeline.registry.alias_log import AliasLog
from pipeline.registry.base import ModelRegistry
from pipeline.rollout.store import RolloutStore
from pipeline.services import Services, connect
from pipeline.serving.validate import validate_adapter

log = logging.getLogger(__name__)

REPLAY_WINDOW_S = 300
MAX_BODY = 64 * 1024
_REPORT_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]*\.html$")


class Command(BaseModel):
    """What a person asks of one business."""

    model_config = ConfigDict(extra="forbid")

    business: str
    actor: str = Field(min_length=1, max_length=100)
    reason: str = Field(min_length=1, max_length=500)


def report_token(secret: str, business: str) -> str:
    """What opens the reports of one business: hex HMAC-SHA256 over its key."""
    return hmac.new(secret.encode(), business.encode(), hashlib.sha256).hexdigest()


def webhook_signature(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    """As MLflow signs: `v1,` and base64 HMAC-SHA256 over `{delivery}.{timestamp}.{body}`."""
    signed = f"{delivery}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()


def make_app(
    controller: Controller, settings: Settings, wake: Callable[[], None], now_s: Callable[[], float] = time.time
) -> Starlette:
    """The HTTP API.

    Args:
        wake: makes the loop tick at once.
        now_s: Unix time, against which webhooks are checked for being replayed.
    """
    admin_key = settings.admin_key.get_secret_value()

    def is_admin(request: Request) -> bool:
        return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {admin_key}".encode())

    async def webhook(request: Request) -> Response:
        headers = request.headers
        timestamp = headers.get("x-mlflow-timestamp", "")
        if int(headers.get("content-length") or 0) > MAX_BODY:
            return _error(413, "a webhook has at most 64 KiB")
        secret = settings.webhook_secret.get_secret_value()
        delivery, body = headers.get("x-mlflow-delivery-id", ""), await request.body()
        signature = webhook_signature(secret, delivery, timestamp, body)
        if not hmac.compare_digest(headers.get("x-mlflow-signature", "").encode(), signature.encode()):
            return _error(401, "the webhook's signature is wrong; is TUNELOOP_WEBHOOK_SECRET the one MLflow has?")
        if not timestamp.isascii() or not timestamp.isdigit() or abs(now_s() - int(timestamp)) > REPLAY_WINDOW_S:
            return _error(401, "the webhook is older than five minutes, or the clocks differ")
        wake()
        return Response(status_code=202)

    async def routes(request: Request) -> Response:
        if not is_admin(request):
            return _error(401, "send the admin key as a bearer token")
        return JSONResponse((await run_in_threadpool(controller.routes)).model_dump(mode="json"))

    async def status(_request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(describe, controller))

    async def command(request: Request) -> Response:
        if not is_admin(request):
            return _error(401, "send the admin key as a bearer token")
        try:
            asked = Command.model_validate_json(await request.body())
        except ValidationError as error:
            return _error(
                422, "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
            )
        act = {"/rollback": controller.roll_back, "/pause": controller.pause, "/resume": controller.resume}
        try:
            state = await run_in_threadpool(act[request.url.path], asked.business, asked.actor, asked.reason)
        except ConfigError as error:
            return _error(404, str(error))
        except PipelineError as error:
            return _error(502, str(error))
        finally:
            wake()
        return JSONResponse({"business": asked.business, "state": state.model_dump(mode="json")})

    async def report(request: Request) -> Response:
        business, name = request.path_params["business"], request.path_params["file"]
        token = report_token(settings.report_secret.get_secret_value(), business)
        if not hmac.compare_digest(request.query_params.get("token", "").encode(), token.encode()):
            return _error(403, "this link is not valid; ask for a new one")
        path = controller.config.state_dir / "reports" / business / name
        if business not in controller.config.businesses or not _REPORT_NAME.match(name) or not path.is_file():
            return _error(404, "no such report")
        return FileResponse(path, media_type="text/html; charset=utf-8", headers={"Cache-Control": "private, no-cache"})

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"ok": True})

    return Starlette(
        routes=[
            Route("/webhook/mlflow", webhook, methods=["POST"]),
            Route("/routes", routes),
            Route("/status", status),
            *(Route(path, command, methods=["POST"]) for path in ("/rollback", "/pause", "/resume")),
            Route("/reports/{business}/{file}", report),
            Route("/healthz", healthz),
        ]
    )


class Loop:
    """Ticks every `poll_s` seconds, and at once when it is woken."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._woken = threading.Event()
        self._stopped = threading.Event()

    def wake(self) -> None:
        self._woken.set()

    def is_woken(self) -> bool:
        return self._woken.is_set()

    def stop(self) -> None:
        self._stopped.set()
        self._woken.set()

    def run(self, tick: Callable[[datetime], None]) -> None:
        """Tick until stopped. A tick that fails in a way nobody thought of is logged, and the next one tries again."""
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                tick(datetime.now(UTC))
            except Exception:
                log.exception("tick failed; the next one tries again")
            self._woken.wait(self._poll_s)


def build(config: Config, settings: Settings, services: Services, loop: Loop) -> Controller:
    """The controller with its real clients. Nothing is contacted yet."""
    gateway = config.system.gateway
    urls = [f"http://{gateway.host}:{port}" for port in gateway.admin_ports]
    gateways = Gateways(urls, settings.admin_key.get_secret_value())
    adapters_dir = config.state_dir / "adapters"
    max_rank = min(engine.max_rank for engine in config.system.engines if engine.serves != "base")

    def validate(folder: Path, version: ModelVersion) -> None:
        validate_adapter(folder, config.system.base_model.path, version.adapter.base, max_rank, adapters_dir)

    return Controller(
        config,
        services.registry,
        services.servers,
        RolloutStore(services.control),
        events_dir=config.state_dir / "events",
        adapters_dir=adapters_dir,
        push_routes=gateways.push,
        read_trips=gateways.trips,
        validate=validate,
        who_set=AliasLog(services.control).who_set,
        clock=lambda: datetime.now(UTC),
        interrupted=loop.is_woken,
    )


def serve(config: Config, settings: Settings) -> None:
    """Run until a signal ends the process.

    Raises:
        ConfigError: the port is taken.
    """
    address = config.system.controller
    listening = _listen(address.host, address.port)
    loop = Loop(address.poll_s)
    services = connect(config, settings)
    controller = build(config, settings, services, loop)
    has_webhook = False

    def tick(now: datetime) -> None:
        nonlocal has_webhook
        controller.tick(now)
        has_webhook = has_webhook or _ask_for_webhook(services.registry, config, settings)

    ticking = threading.Thread(target=loop.run, args=(tick,), name="controller-loop", daemon=True)
    ticking.start()
    server = uvicorn.Server(
        uvicorn.Config(make_app(controller, settings, loop.wake), log_level="warning", access_log=False)
    )
    log.info("controller: http://%s:%d/status, every %g s", address.host, address.port, address.poll_s)
    try:
        server.run(sockets=[listening])
    finally:
        loop.stop()
        ticking.join(timeout=10)


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"port {port} on {host} cannot be used ({error.strerror}); stop what uses it or set `controller.port`"
        ) from error
    return listening


def _ask_for_webhook(registry: ModelRegistry, config: Config, settings: Settings) -> bool:
    """Have MLflow wake the loop; without it the loop is up to `poll_s` slower and does the same."""
    from pipeline.registry.mlflow import MlflowRegistry

    address = config.system.controller
    url = f"http://{address.host}:{address.port}/webhook/mlflow"
    if isinstance(registry, MlflowRegistry):
        try:
            registry.ensure_webhook(url, settings.webhook_secret.get_secret_value())
        except RegistryError as error:
            log.info("no webhook from MLflow yet, polling every %g s: %s", address.poll_s, error)
            return False
    return True


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)


def main() -> None:
    """`python -m flows.controller --configs DIR`."""
    parser = argparse.ArgumentParser(description="Bring what was decided into service, and keep it there.")
    parser.add_argument("--configs", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s  %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        config = load_config(arguments.configs)
        serve(config, load_settings(config.state_dir))
    except PipelineError as error:
        sys.exit(f"tuneloop: {error}")
