"""The gateway in front of a real vLLM."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from pipeline.records import StreamEnd
from tests.conftest import ROOT, Engines
from tests.gateway_stub import RunningGateway, running_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
MESSAGES: Any = [{"role": "user", "content": "Say something about the sea."}]


@pytest.fixture
async def gateway(engines: Engines, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, engines.base_url, base=engines.model_id) as running:
        yield running


async def test_streams_documents_and_errors_of_a_real_engine(gateway: RunningGateway) -> None:
    async with openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=gateway.key, timeout=120) as client:
        whole = await client.chat.completions.create(model="support", messages=MESSAGES, max_tokens=8, temperature=0)
        text = ""
        stream = await client.chat.completions.create(
            model="support", messages=MESSAGES, max_tokens=8, temperature=0, stream=True, n=1
        )
        async for chunk in stream:
            assert chunk.choices, "the usage chunk was not asked for"
            text += chunk.choices[0].delta.content or ""
        assert text == whole.choices[0].message.content
        with pytest.raises(openai.BadRequestError):
            await client.chat.completions.create(model="support", messages=MESSAGES, max_tokens=-5)
    document, streamed, refused = await gateway.logged(3)
    assert document.choices[0].message["content"] == streamed.choices[0].message["content"] == text
    assert document.usage == streamed.usage is not None
    assert [one.stream_end for one in (document, streamed, refused)] == [
        StreamEnd.COMPLETE,
        StreamEnd.COMPLETE,
        StreamEnd.UPSTREAM_ERROR,
    ]
    assert document.prompt_hash == streamed.prompt_hash


async def test_a_client_that_leaves_frees_a_real_engine(gateway: RunningGateway, engines: Engines) -> None:
    body = {"messages": MESSAGES, "max_tokens": 900, "stream": True, "ignore_eos": True}
    async with httpx.AsyncClient(headers=gateway.auth, timeout=120) as client:
        async with client.stream("POST", gateway.url + "/v1/chat/completions", json=body) as response:
            async for piece in response.aiter_raw():
                if b"content" in piece:
                    break
        (logged,) = await gateway.logged()
        assert logged.stream_end in (StreamEnd.CLIENT_ABORT, StreamEnd.CLIENT_ABORT_BEFORE_FIRST_TOKEN)
        async with asyncio.timeout(20):
            while running_requests((await client.get(engines.base_url + "/metrics")).text):
                await asyncio.sleep(0.1)


async def test_vllm_s_own_load_test_runs_against_the_gateway(
    gateway: RunningGateway, engines: Engines, tmp_path: Path
) -> None:
    what = ("--backend", "openai-chat", "--base-url", gateway.url, "--endpoint", "/v1/chat/completions")
    whom = ("--model", "support", "--tokenizer", str(engines.base_path))
    load = ("--dataset-name", "random", "--random-input-len", "16", "--random-output-len", "4", "--num-prompts", "4")
    kept = ("--save-result", "--result-dir", str(tmp_path), "--result-filename", "result.json")
    process = await asyncio.create_subprocess_exec(
        str(ROOT / ".venv-engine" / "bin" / "vllm"),
        *("bench", "serve", *what, *whom, *load, *kept),
        env=os.environ | {"OPENAI_API_KEY": gateway.key, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-2000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["completed"], result["failed"]) == (4, 0)
    assert {one.stream_end for one in await gateway.logged(4)} == {StreamEnd.COMPLETE}


def running_requests(metrics: str) -> float:
    lines = [line for line in metrics.splitlines() if line.startswith("vllm:num_requests_running")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)
