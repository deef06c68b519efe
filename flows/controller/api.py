"""The controller's HTTP API: it wakes the loop, tells what is so, and does what people ask.

A webhook says nothing that is believed: it only wakes the loop, which then reads the registry. So one that is doubled,
late or out of order does no harm.
"""

import base64
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from evals.report import INDEX
from flows.controller.controller import Controller
from flows.controller.explain import explain
from flows.controller.pages import served_page
from flows.controller.status import describe
from pipeline.config import Settings
from pipeline.errors import ConfigError, PipelineError, RolloutRefused
from pipeline.rollout.ab import AbTest
from pipeline.rollout.state import Canary, Paused, Steady

log = logging.getLogger(__name__)

REPLAY_WINDOW_S = 300
MAX_BODY = 64 * 1024
_TOKEN_COOKIE = "tuneloop-reports"
_REPORT_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]*\.html$")


class Command(BaseModel):
    """What a person asks of one business."""

    model_config = ConfigDict(extra="forbid")

    business: str
    actor: str = Field(min_length=1, max_length=100)
    reason: str = Field(min_length=1, max_length=500)


class StartCommand(Command):
    """A version that is to have its canary, or an A/B test."""

    version: int = Field(ge=1)
    ab: AbTest | None = None


_Command = TypeVar("_Command", bound=Command)


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
    api = _Api(controller, settings, wake, now_s)
    return Starlette(
        routes=[
            Route("/webhook/mlflow", api.webhook, methods=["POST"]),
            Route("/routes", api.routes),
            Route("/status", api.status),
            Route("/start", api.start, methods=["POST"]),
            *(Route(path, api.command, methods=["POST"]) for path in ("/rollback", "/pause", "/resume", "/step")),
            Route("/explain/{business}", api.explain),
            Route("/reports/{business}", api.overview),
            Route("/reports/{business}/{file}", api.report),
            Route("/healthz", api.healthz),
        ]
    )


class _Api:
    def __init__(
        self, controller: Controller, settings: Settings, wake: Callable[[], None], now_s: Callable[[], float]
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._wake = wake
        self._now_s = now_s

    async def webhook(self, request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return _error(413, f"a webhook has at most {MAX_BODY} bytes")
        headers = request.headers
        timestamp = headers.get("x-mlflow-timestamp", "")
        secret = self._settings.webhook_secret.get_secret_value()
        signature = webhook_signature(secret, headers.get("x-mlflow-delivery-id", ""), timestamp, body)
        if not hmac.compare_digest(headers.get("x-mlflow-signature", "").encode(), signature.encode()):
            return _error(401, "the webhook's signature is wrong; is TUNELOOP_WEBHOOK_SECRET the one MLflow has?")
        if not timestamp.isascii() or not timestamp.isdigit() or abs(self._now_s() - int(timestamp)) > REPLAY_WINDOW_S:
            return _error(401, "the webhook is older than five minutes, or the clocks differ")
        self._wake()
        return Response(status_code=202)

    async def routes(self, request: Request) -> Response:
        if not self._is_admin(request):
            return _error(401, "send the admin key as a bearer token")
        return JSONResponse((await run_in_threadpool(self._controller.routes)).model_dump(mode="json"))

    async def status(self, request: Request) -> Response:
        if not self._is_admin(request):
            return _error(401, "send the admin key as a bearer token")
        return JSONResponse(await run_in_threadpool(describe, self._controller))

    async def start(self, request: Request) -> Response:
        return await self._obey(
            request, StartCommand, lambda c: self._controller.start(c.business, c.version, c.actor, c.reason, c.ab)
        )

    async def command(self, request: Request) -> Response:
        controller = self._controller
        act = {
            "/rollback": controller.roll_back,
            "/pause": controller.pause,
            "/resume": controller.resume,
            "/step": controller.step,
        }[request.url.path]
        return await self._obey(request, Command, lambda c: act(c.business, c.actor, c.reason))

    async def _obey(
        self, request: Request, kind: type[_Command], act: Callable[[_Command], Steady | Canary | Paused]
    ) -> Response:
        if not self._is_admin(request):
            return _error(401, "send the admin key as a bearer token")
        try:
            asked = kind.model_validate_json(await _body(request) or b"")
        except ValidationError as error:
            return _error(
                422, "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
            )
        try:
            state = await run_in_threadpool(act, asked)
        except PipelineError as error:
            return _failed(error)
        except SQLAlchemyError as error:
            reason = " ".join(str(error.__cause__ or error).split())[:200]
            log.error("%s: the control database: %s", request.url.path, reason)
            return _error(503, f"the control database refuses ({reason}); see `tuneloop rollout status` and ask again")
        finally:
            self._wake()
        return JSONResponse({"business": asked.business, "state": state.model_dump(mode="json")})

    async def explain(self, request: Request) -> Response:
        if not self._is_admin(request):
            return _error(401, "send the admin key as a bearer token")
        now = datetime.fromtimestamp(self._now_s(), UTC)
        try:
            told = await run_in_threadpool(explain, self._controller, request.path_params["business"], now)
        except PipelineError as error:
            return _failed(error)
        return JSONResponse(told.model_dump(mode="json"))

    async def overview(self, request: Request) -> Response:
        # Links between pages are relative: they need the folder in the address.
        return RedirectResponse(request.url.replace(path=f"{request.url.path.rstrip('/')}/{INDEX}"))

    async def report(self, request: Request) -> Response:
        business, name = request.path_params["business"], request.path_params["file"]
        token = report_token(self._settings.report_secret.get_secret_value(), business)
        # Whoever opened one page of the business with its link may follow the links from there, which hold no token.
        shown = request.query_params.get("token", request.cookies.get(_TOKEN_COOKIE, ""))
        if not hmac.compare_digest(shown.encode(), token.encode()):
            return _error(403, "this link is not valid; ask for a new one")
        about = self._controller.config.businesses.get(business)
        page = None
        if about is not None and _REPORT_NAME.match(name):
            now = datetime.fromtimestamp(self._now_s(), UTC)
            page = await run_in_threadpool(served_page, self._controller, about, name, now)
        if page is None:
            return _error(404, "no such report")
        response = HTMLResponse(page, headers={"Cache-Control": "private, no-cache"})
        response.set_cookie(_TOKEN_COOKIE, token, path=f"/reports/{business}/", httponly=True, samesite="strict")
        return response

    async def healthz(self, _request: Request) -> Response:
        return JSONResponse({"ok": True})

    def _is_admin(self, request: Request) -> bool:
        key = self._settings.admin_key.get_secret_value()
        return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {key}".encode())


async def _body(request: Request) -> bytes | None:
    """The body; None when it is longer than anything that is sent here, whatever its headers say."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            return None
    return bytes(body)


def _failed(error: PipelineError) -> JSONResponse:
    status = 404 if isinstance(error, ConfigError) else 409 if isinstance(error, RolloutRefused) else 502
    return _error(status, str(error))


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)
