"""What an engine does with adapters: the same tests over a real vLLM and over the scripted engine.

They share one engine for the whole run, so each test uses names of its own.
"""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from safetensors.numpy import load_file

from pipeline.errors import EngineUnavailable, ServingError
from pipeline.serving.proof import fingerprint, prove
from pipeline.serving.scripted import ScriptedEngine
from pipeline.serving.vllm import VllmServer
from tests.adapter_files import SMOLLM2, adapter_tensors, write_adapter
from tests.conftest import Engines, free_port

MAX_RANK = 8
TEXTS = ("How do I return a parcel? Open the order page and choose the parcel.", "The ticket stays open until Monday.")


@dataclass
class Rig:
    """A pair of engines and adapters that fit them."""

    base: VllmServer
    server: VllmServer
    model_id: str
    folder: Path
    scripted: ScriptedEngine | None
    engines: Engines | None

    def adapter(self, seed: int, *, rank: int = 8, strength: float = 0.05) -> Path:
        folder = self.folder / f"{seed}-{rank}-{strength}"
        if not folder.exists():
            shapes, layers = ({"self_attn.q_proj": (16, 16)}, 1) if self.scripted else (SMOLLM2, 30)
            write_adapter(folder, adapter_tensors(shapes, layers, rank=rank, seed=seed, strength=strength), rank=rank)
        return folder

    def restart(self) -> None:
        if self.scripted:
            self.scripted.restart()
        elif self.engines:
            self.engines.adapters.restart()


@pytest.fixture(scope="module", params=["scripted", pytest.param("vllm", marks=pytest.mark.engine)])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("adapters")
    if request.param == "vllm":
        engines: Engines = request.getfixturevalue("engines")
        base, server = (VllmServer(url, engines.model_id) for url in (engines.base_url, engines.adapters_url))
        yield Rig(base, server, engines.model_id, folder, None, engines)
        return
    with ScriptedEngine() as one, ScriptedEngine(max_rank=MAX_RANK) as two:
        yield Rig(VllmServer(one.url, "base"), VllmServer(two.url, "base"), "base", folder, two, None)


@pytest.fixture
def name() -> str:
    return f"support-v1-{uuid.uuid4().hex[:8]}"


def test_what_is_loaded_is_listed_until_it_is_unloaded(rig: Rig, name: str) -> None:
    rig.server.load(name, rig.adapter(1))
    rig.server.load(name, rig.adapter(1))
    assert rig.server.list().count(name) == 1
    rig.server.unload(name)
    assert name not in rig.server.list()
    rig.server.unload(name)
    with pytest.raises(ServingError):
        rig.server.probe(name, TEXTS)


def test_twenty_loads_at_once_are_one(rig: Rig, name: str) -> None:
    """Ten through each of two clients, as from two controllers."""
    loads = rig.scripted.loads if rig.scripted else 0
    clients = [rig.server, VllmServer(rig.server.url, rig.model_id)]
    folder = rig.adapter(1)
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda place: clients[place % 2].load(name, folder), range(20)))
    assert rig.server.list().count(name) == 1
    if rig.scripted:
        assert rig.scripted.loads == loads + 1
    rig.server.unload(name)


def test_a_name_never_changes_its_adapter(rig: Rig, name: str) -> None:
    rig.server.load(name, rig.adapter(1))
    before = rig.server.probe(name, TEXTS)
    with pytest.raises(ServingError, match="never used twice"):
        rig.server.load(name, rig.adapter(2))
    assert rig.server.probe(name, TEXTS) == pytest.approx(before, abs=0.5)
    rig.server.unload(name)


def test_a_failed_load_leaves_nothing_behind(rig: Rig, name: str) -> None:
    with pytest.raises(ServingError, match="No adapter found"):
        rig.server.load(name, rig.folder / "absent")
    assert name not in rig.server.list()
    rig.server.load(name, rig.adapter(1))
    assert name in rig.server.list()
    rig.server.unload(name)


def test_too_high_a_rank_is_refused_with_both_numbers(rig: Rig, name: str) -> None:
    with pytest.raises(ServingError, match=r"16 is greater than max_lora_rank 8"):
        rig.server.load(name, rig.adapter(1, rank=16))
    assert name not in rig.server.list()


def test_base_and_adapters_score_texts_differently(rig: Rig, name: str) -> None:
    other = f"{name}0"
    rig.server.load(name, rig.adapter(1))
    rig.server.load(other, rig.adapter(2))
    base = rig.base.probe(rig.model_id, TEXTS)
    one, two = rig.server.probe(name, TEXTS), rig.server.probe(other, TEXTS)
    assert all(value < 0 for value in (*base, *one, *two))
    for first, second in ((base, one), (base, two), (one, two)):
        assert max(abs(a - b) for a, b in zip(first, second, strict=True)) > 1
    rig.server.unload(name)
    rig.server.unload(other)


def test_it_says_what_it_serves(rig: Rig) -> None:
    assert rig.server.health()
    with pytest.raises(ServingError, match=f"serves {rig.model_id}, not the base model 'another'"):
        VllmServer(rig.server.url, "another").list()


def test_nobody_there_is_a_reason_to_come_back(rig: Rig, name: str) -> None:
    nobody = VllmServer(f"http://127.0.0.1:{free_port()}", rig.model_id)
    assert not nobody.health()
    for call in (
        lambda: nobody.load(name, rig.adapter(1)),
        lambda: nobody.unload(name),
        nobody.list,
        lambda: nobody.probe(rig.model_id, TEXTS),
    ):
        with pytest.raises(EngineUnavailable):
            call()


def test_proofs_hold_in_a_busy_engine_and_after_a_restart(rig: Rig, name: str) -> None:
    """Scoring a prompt beside other requests once killed the CPU engine."""
    other, still = f"{name}0", f"{name}1"
    rig.server.load(name, rig.adapter(1))
    rig.server.load(other, rig.adapter(2))
    rig.server.load(still, rig.adapter(3, strength=0.0))
    recorded = fingerprint(rig.base, rig.server, rig.model_id, name, TEXTS)
    with ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(_answer, rig, model) for model in (name, other, still)]
        prove(rig.server, name, recorded)
        assert [answer.result().status_code for answer in answers] == [200] * 3
    with pytest.raises(ServingError, match="another adapter"):
        prove(rig.server, other, recorded)
    if not rig.scripted:  # its adapters always move something
        with pytest.raises(ServingError, match="the base model"):
            prove(rig.server, still, recorded)
    rig.restart()
    assert rig.server.list() == ()
    rig.server.load(name, rig.adapter(1))
    prove(rig.server, name, recorded)


def test_an_adapter_whose_modules_are_misnamed_loads_and_serves_the_base_and_is_refused(rig: Rig, name: str) -> None:
    """Engines pass over modules that they do not know, and say `200`."""
    rig.server.load(name, rig.adapter(1))
    recorded = fingerprint(rig.base, rig.server, rig.model_id, name, TEXTS)
    rig.server.unload(name)
    misnamed = rig.folder / "misnamed"
    tensors = load_file(rig.adapter(1) / "adapter_model.safetensors")
    write_adapter(misnamed, {key.replace("model.layers", "decoder.layers"): value for key, value in tensors.items()})
    if rig.scripted:
        rig.scripted.faults.serve_base = True
    rig.server.load(name, misnamed)
    assert name in rig.server.list()
    with pytest.raises(ServingError, match="under that name but the base model"):
        prove(rig.server, name, recorded)
    rig.server.unload(name)
    if rig.scripted:
        rig.scripted.faults.serve_base = False


def _answer(rig: Rig, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "A long story?"}], "max_tokens": 24}
    return httpx.post(f"{rig.server.url}/v1/chat/completions", json=body, timeout=120)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with ScriptedEngine(api_key="secret") as engine:
        yield engine


def test_a_key_is_sent_and_a_wrong_one_is_named(engine: ScriptedEngine) -> None:
    assert VllmServer(engine.url, "base", api_key="secret").list() == ()
    with pytest.raises(ServingError, match="TUNELOOP_ENGINE_KEY"):
        VllmServer(engine.url, "base").list()


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_engine_is_asked_again_and_a_refusing_one_is_not(engine: ScriptedEngine, status: int) -> None:
    server = VllmServer(engine.url, "base", api_key="secret")
    engine.faults.status = status
    with pytest.raises(EngineUnavailable):
        server.probe("base", TEXTS)
    engine.faults.status = 400
    with pytest.raises(ServingError) as refused:
        server.probe("base", TEXTS)
    assert not isinstance(refused.value, EngineUnavailable)


def test_an_engine_that_hangs_is_given_up(engine: ScriptedEngine) -> None:
    engine.faults.hang = True
    server = VllmServer(engine.url, "base", api_key="secret", timeout_s=0.2)
    assert not server.health()
    with pytest.raises(EngineUnavailable, match="ReadTimeout"):
        server.list()


def test_a_stream_of_the_scripted_engine_reads_like_vllms(engine: ScriptedEngine) -> None:
    body = {"model": "base", "messages": [{"role": "user", "content": "one two"}], "stream": True}
    body |= {"stream_options": {"include_usage": True}}
    answer = httpx.post(f"{engine.url}/v1/chat/completions", json=body, headers={"Authorization": "Bearer secret"})
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [httpx.Response(200, text=event).json() for event in events[:-1]]
    text = "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])
    assert text == "base says: one two"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == 4


def test_a_cut_stream_ends_in_the_middle(engine: ScriptedEngine) -> None:
    engine.faults.cut_after = 2
    body = {"model": "base", "messages": [{"role": "user", "content": "one two"}], "stream": True}
    headers = {"Authorization": "Bearer secret"}
    with (
        httpx.stream("POST", f"{engine.url}/v1/chat/completions", json=body, headers=headers) as answer,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        answer.read()
