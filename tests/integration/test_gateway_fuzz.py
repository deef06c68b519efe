"""Requests that nobody would write, made from the descriptions of both APIs: whatever comes, a running gateway answers
in time, with a status and a shape that its description names, and never with an error of its own.

Valid requests and broken ones, by callers with and without a key; the choice is the same in every run.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
import uvloop
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from pipeline.gateway.auth import create_key
from pipeline.gateway.openapi import ADMIN_API, DATA_API, openapi_json
from tests.gateway_stub import ADMIN, NOW, Peer, RunningGateway, completion, delta, running_gateway, sse, stub_engine

EXAMPLES = 30
TIMEOUT_S = 20.0
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SHAPE = ("status_code_conformance", "content_type_conformance", "response_headers_conformance")
DATA = schemathesis.openapi.from_dict(json.loads(openapi_json(DATA_API)))
ADMINISTRATION = schemathesis.openapi.from_dict(json.loads(openapi_json(ADMIN_API)))


def operations(schema: Any) -> list[Any]:
    """Each operation with each way of making requests up; one without any input cannot be asked wrongly."""
    found = []
    for operation in (one.ok() for one in schema.get_all_operations()):
        raw = operation.definition.raw
        has_input = raw.get("security") != [] or "requestBody" in raw or "{" in operation.path
        for mode in GenerationMode if has_input else (GenerationMode.POSITIVE,):
            found.append(pytest.param(operation, mode, id=f"{operation.label} {mode.value}"))
    return found


async def answer_whatever(peer: Peer) -> None:
    """An engine that answers every body."""
    if peer.body.get("stream"):
        await peer.stream(sse(delta("fine"), done=False), sse(delta(finish="stop")))
    else:
        await peer.json(completion())


@contextmanager
def gateway_in_thread(folder: Path, *, engine_up: bool = True) -> Iterator[RunningGateway]:
    """The fuzzer blocks, so the gateway has a thread of its own."""
    started = threading.Event()
    state: dict[str, Any] = {}

    async def serve() -> None:
        state["loop"], state["stop"] = asyncio.get_running_loop(), asyncio.Event()
        async with stub_engine(answer_whatever) as engine:
            url = engine.url if engine_up else "http://127.0.0.1:1"
            async with running_gateway(folder, url) as gateway:
                create_key(gateway.database, "ops", [], NOW, admin=True)
                state["gateway"] = gateway
                started.set()
                await state["stop"].wait()

    thread = threading.Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    try:
        assert started.wait(30)
        yield state["gateway"]
    finally:
        state["loop"].call_soon_threadsafe(state["stop"].set)
        thread.join(60)
        assert not thread.is_alive()


@dataclass
class Caller:
    """Who sends what was made up, and about what."""

    headers: dict[str, str] | None
    """None: as made up."""
    known: dict[str, str]
    """Path parameters that exist; none: as made up."""


@dataclass
class Target:
    """A running API and its possible callers."""

    url: str
    callers: list[Caller]
    alive: str


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with gateway_in_thread(tmp_path_factory.mktemp("data")) as gateway:
        chat = {"messages": [{"role": "user", "content": "hi"}]}
        with httpx.Client(base_url=gateway.url, headers=gateway.auth, timeout=TIMEOUT_S) as client:
            interaction = client.post("/v1/chat/completions", json=chat).headers["x-interaction-id"]
            wanted = {"interaction_id": interaction, "kinds": ["thumb", "edit", "choice", "comment", "regenerate"]}
            token = client.post("/v1/feedback-links", json=wanted).json()["token"]
        known = {"interaction_id": interaction, "token": token}
        both = {"authorization": f"Bearer {gateway.both_key}"}
        callers = [Caller(None, {}), Caller(gateway.auth, {}), Caller(gateway.auth, known), Caller(both, known)]
        yield Target(gateway.url, callers, gateway.url + "/readyz")


@pytest.fixture(scope="module")
def administration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with gateway_in_thread(tmp_path_factory.mktemp("admin")) as gateway:
        callers = [Caller(None, {}), Caller(ADMIN, {}), Caller(ADMIN, {"business": "support"})]
        yield Target(gateway.admin_url, callers, gateway.url + "/readyz")


def fuzz(operation: APIOperation, mode: GenerationMode, target: Target, *, engine_errors: bool = False) -> set[int]:
    """Send what can be made up; returns the statuses that came."""
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in (*SHAPE, "response_schema_conformance")]
    statuses: set[int] = set()
    session = requests.Session()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode), st.sampled_from(target.callers))
    def send(case: Case, caller: Caller) -> None:
        for name, value in caller.known.items():
            for place in (case.path_parameters, case.query):
                if place and name in place:
                    place[name] = value
        response = case.call(
            base_url=target.url, session=session, headers=caller.headers, timeout=TIMEOUT_S, allow_redirects=False
        )
        statuses.add(response.status_code)
        assert response.status_code < 500 or (engine_errors and response.status_code == 502)
        case.validate_response(response, checks=checks)

    with session:
        send()
    return statuses


@pytest.mark.parametrize(("operation", "mode"), operations(DATA))
def test_the_data_api_answers_as_it_is_described(data: Target, operation: APIOperation, mode: GenerationMode) -> None:
    statuses = fuzz(operation, mode, data)
    if mode is GenerationMode.POSITIVE:
        assert statuses & {200, 201, 202}
    assert httpx.get(data.alive, timeout=TIMEOUT_S).status_code == 200


@pytest.mark.parametrize(("operation", "mode"), operations(ADMINISTRATION))
def test_the_admin_api_answers_as_it_is_described(
    administration: Target, operation: APIOperation, mode: GenerationMode
) -> None:
    fuzz(operation, mode, administration)
    assert httpx.get(administration.alive, timeout=TIMEOUT_S).status_code == 200


@pytest.mark.parametrize("api", ["data", "administration"])
def test_other_methods_are_refused_and_told_which_there_are(api: str, request: pytest.FixtureRequest) -> None:
    target: Target = request.getfixturevalue(api)
    schema = DATA if api == "data" else ADMINISTRATION
    with httpx.Client(base_url=target.url, headers=target.callers[-1].headers, timeout=TIMEOUT_S) as client:
        for path, described in schema.raw_schema["paths"].items():
            there = {method.upper() for method in described} & set(METHODS)
            for method in set(METHODS) - there - ({"HEAD"} if "GET" in there else set()):
                answer = client.request(method, path.format(token="x", interaction_id="x"))
                assert answer.status_code == 405, (method, path)
                assert set(answer.headers["allow"].split(", ")) == there


def test_without_an_engine_completions_say_so_as_it_is_described(tmp_path: Path) -> None:
    with gateway_in_thread(tmp_path, engine_up=False) as gateway:
        target = Target(gateway.url, [Caller(gateway.auth, {})], gateway.url + "/readyz")
        for operation in (one.ok() for one in DATA.get_all_operations()):
            if "completions" in operation.path:
                assert 502 in fuzz(operation, GenerationMode.POSITIVE, target, engine_errors=True)
