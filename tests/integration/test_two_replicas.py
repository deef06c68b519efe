"""Two real vLLM replicas for adapters at once: each adapter loaded and proven on one after the other, one killed."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from flows.controller.fleet import Fleet
from pipeline.config import EngineConfig
from pipeline.records import ModelVersion
from pipeline.registry.memory import MemoryRegistry
from pipeline.serving.proof import fingerprint
from pipeline.serving.vllm import VllmServer
from pipeline.train.process import adapter_digest
from tests.adapter_files import SMOLLM2, adapter_tensors, write_adapter
from tests.builders import an_adapter
from tests.conftest import Engines, Started, free_port, running

pytestmark = pytest.mark.engine

TEXTS = ("How do I return a parcel? Open the order page and choose the parcel.", "The ticket stays open until Monday.")


class Watched:
    """An engine's client that writes down what is asked of it, and that nothing is asked of two at once."""

    def __init__(self, server: VllmServer, calls: list[tuple[str, str]], name: str) -> None:
        self._server = server
        self._calls = calls
        self._name = name

    def __getattr__(self, method: str) -> Any:
        called = getattr(self._server, method)
        if method not in ("load", "probe", "unload"):
            return called

        def call(*arguments: Any) -> Any:
            self._calls.append((self._name, f"{method} begins"))
            try:
                return called(*arguments)
            finally:
                self._calls.append((self._name, f"{method} ends"))

        return call


@dataclass
class Replicas:
    """Two replicas, a base engine to measure against, and a registry."""

    fleet: Fleet
    registry: MemoryRegistry
    base: VllmServer
    one: VllmServer
    second: Started
    urls: tuple[str, str]
    calls: list[tuple[str, str]]
    folder: Path
    model_id: str

    def version(self, seed: int) -> ModelVersion:
        """Trained, registered, and measured on the first replica under a name of its own."""
        folder = write_adapter(self.folder / f"trained-{seed}", adapter_tensors(SMOLLM2, 30, seed=seed))
        version = self.registry.register(an_adapter(sha256=adapter_digest(folder)), folder, {}, "a test")
        self.one.load(f"gate-{seed}", folder)
        measured = fingerprint(self.base, self.one, self.model_id, f"gate-{seed}", TEXTS)
        self.one.unload(f"gate-{seed}")
        self.registry.record_fingerprint("support", version.version, measured)
        return self.registry.get("support", version.version)

    def make_ready(self, *versions: ModelVersion) -> None:
        """As ticks do, until nothing is left to do."""
        names = [version.serving_name for version in versions]
        for _ in range(60):
            self.fleet.observe(names, lambda: False)
            self.fleet.make_ready(versions, lambda: False)
            if all(self.fleet.ready(name) or self.fleet.refused(name) for name in names):
                return
        pytest.fail(f"engines never held {names}: {self.fleet.describe()}")

    def serving(self, version: ModelVersion) -> tuple[str, ...]:
        return self.fleet.replicas(version.serving_name)


@pytest.fixture(scope="module")
def replicas(engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder, port = tmp_path_factory.mktemp("replicas"), free_port()
    first = engines.adapters
    command = list(first.command)
    command[command.index("--port") + 1] = str(port)
    second = replace(
        first,
        url=f"http://127.0.0.1:{port}",
        command=(*command, "--kv-mb", "64"),
        log=folder / "second.log",
        process=None,
    )
    with running(second):
        registry, calls = MemoryRegistry(), list[tuple[str, str]]()
        servers = {name: VllmServer(url, engines.model_id) for name, url in (("one", first.url), ("two", second.url))}
        configs = [EngineConfig(name=name, url=server.url, serves="adapters") for name, server in servers.items()]
        watched: dict[str, Any] = {name: Watched(server, calls, name) for name, server in servers.items()}
        yield Replicas(
            fleet=Fleet(configs, watched, registry, folder / "adapters", may_act=lambda: True),
            registry=registry,
            base=VllmServer(engines.base_url, engines.model_id),
            one=servers["one"],
            second=second,
            urls=(first.url, second.url),
            calls=calls,
            folder=folder,
            model_id=engines.model_id,
        )
        for name in servers["one"].list():
            servers["one"].unload(name)


def test_adapters_come_to_both_replicas_one_at_a_time_and_a_killed_one_comes_back_whole_before_it_is_asked(
    replicas: Replicas,
) -> None:
    stable, candidate = replicas.version(1), replicas.version(2)
    replicas.calls.clear()
    replicas.make_ready(stable, candidate)
    assert replicas.serving(stable) == replicas.serving(candidate) == replicas.urls
    assert replicas.calls == [
        (engine, f"{method} {stage}")
        for _ in (stable, candidate)
        for engine in ("one", "two")
        for method in ("load", "probe")
        for stage in ("begins", "ends")
    ]

    assert replicas.second.process is not None
    os.killpg(replicas.second.process.pid, signal.SIGKILL)
    replicas.second.process.wait()
    names = [stable.serving_name, candidate.serving_name]
    replicas.fleet.observe(names, lambda: False)
    assert replicas.serving(stable) == replicas.serving(candidate) == replicas.urls[:1]

    replicas.calls.clear()
    replicas.second.start()
    replicas.second.wait()
    replicas.fleet.observe(names, lambda: False)
    assert replicas.serving(stable) == replicas.serving(candidate) == replicas.urls[:1]  # it answers, and holds nothing
    replicas.fleet.make_ready([stable, candidate], lambda: True)  # something urgent comes: one adapter is brought back
    assert replicas.serving(stable) == replicas.serving(candidate) == replicas.urls[:1]  # it is not whole
    replicas.make_ready(stable, candidate)
    assert replicas.serving(stable) == replicas.serving(candidate) == replicas.urls
    assert [call for call in replicas.calls if call[1].startswith("load")] == [
        ("two", "load begins"),
        ("two", "load ends"),
    ] * 2


def test_an_adapter_whose_modules_are_misnamed_is_refused_by_both(replicas: Replicas) -> None:
    """Both engines load it with `200` and serve the base model under its name."""
    good = replicas.version(3)
    tensors = load_file(replicas.folder / "trained-3" / "adapter_model.safetensors")
    renamed = {key.replace("model.layers", "decoder.layers"): value for key, value in tensors.items()}
    folder = write_adapter(replicas.folder / "misnamed", renamed)
    wrong = replicas.registry.register(an_adapter(sha256=adapter_digest(folder)), folder, {}, "a test")
    assert good.fingerprint is not None
    replicas.registry.record_fingerprint("support", wrong.version, good.fingerprint)
    wrong = replicas.registry.get("support", wrong.version)
    replicas.make_ready(wrong)
    refused: list[Any] = [engine["refused"] for engine in replicas.fleet.describe()]
    assert all("under that name but the base model" in reasons[wrong.serving_name] for reasons in refused)
    assert len(refused) == 2
    assert replicas.serving(wrong) == ()
    assert wrong.serving_name not in replicas.one.list()
