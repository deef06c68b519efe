"""One adapter into a real vLLM on this machine: loaded into the running engine and proven, or by a restart with it.

Adapters are random, of rank 8 in the base model's shapes, so that none is in any cache of the engine; the files are in
the page cache for both ways.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from pipeline.serving.proof import fingerprint, prove
from pipeline.serving.validate import validate_adapter
from pipeline.serving.vllm import VllmServer
from pipeline.train.base_ref import base_model_ref
from tests.adapter_files import SMOLLM2, adapter_tensors, write_adapter
from tests.benchmarks.gateway.proc import tree, usage
from tests.chaos.part import ROOT, Part, free_ports

MODEL = ROOT / "var" / "models" / "smollm2-135m-instruct"
_ID, _REVISION, _LAYERS, _RANK = "smollm2-135m-instruct", "bench", 30, 8
_PROBES = (
    "The parcel was sent on Monday and reaches you within three working days.",
    "Please restart the router, wait for two minutes, and try to connect again.",
    "您的订单已经发货，预计三天内送达，请注意查收。",
    "To cancel a subscription, open the settings, choose billing, and confirm.",
)
_BLINK_S = 0.1
_LIMIT_S = 300.0


@dataclass
class Samples:
    """Seconds, one for each adapter; CPU seconds are the engine's."""

    validate: list[float]
    load: list[float]
    prove: list[float]
    cpu: list[float]
    restart: list[float]
    """Of the peer: from the restart to the adapter's first answer."""
    restart_cpu: list[float]

    @property
    def ready(self) -> list[float]:
        """Until it may serve."""
        return [sum(parts) for parts in zip(self.validate, self.load, self.prove, strict=True)]


def measure(folder: Path, adapters: int, restarts: int, say: Callable[[str], None]) -> Samples:
    """Load and prove adapters one after the other, then restart the engine with one."""
    samples = Samples([], [], [], [], [], [])
    (port,) = free_ports(1)
    base = base_model_ref(MODEL, _ID, _REVISION)
    folders = [
        write_adapter(
            folder / "adapters" / str(seed),
            adapter_tensors(SMOLLM2, _LAYERS, rank=_RANK, seed=seed),
            rank=_RANK,
            base_model_name_or_path=_ID,
            revision=_REVISION,
        )
        for seed in range(adapters)
    ]
    launch = (str(ROOT / "infra" / "launch" / "engine.sh"), "--name", "bench", "--port", str(port))
    command = (*launch, "--model", str(MODEL), "--served-id", _ID, "--serves", "adapters", "--max-rank", "8")
    part = Part(
        "vllm",
        command,
        f"http://127.0.0.1:{port}/health",
        folder / "vllm.log",
        os.environ,
        httpx.Client(trust_env=False),
    )
    say("starting vLLM")
    part.start()
    try:
        part.wait()
        url = f"http://127.0.0.1:{port}"
        server = VllmServer(url, _ID)
        for number, adapter in enumerate(folders):
            name = f"bench-v{number}"
            server.load(f"{name}-reference", adapter)
            recorded = fingerprint(server, server, _ID, f"{name}-reference", _PROBES)
            server.unload(f"{name}-reference")
            before, began = usage(tree(part.pid)).cpu_ns, time.monotonic()
            validate_adapter(adapter, MODEL, base, _RANK, adapter.parent)
            validated = time.monotonic()
            server.load(name, adapter)
            loaded = time.monotonic()
            prove(server, name, recorded)
            proven = time.monotonic()
            samples.validate.append(validated - began)
            samples.load.append(loaded - validated)
            samples.prove.append(proven - loaded)
            samples.cpu.append((usage(tree(part.pid)).cpu_ns - before) / 1e9)
            say(f"adapter {number + 1}: {proven - began:.2f} s")
        part.command = _with_adapter(port, folders[0])
        for number in range(restarts):
            began = time.monotonic()
            _restart(part, url)
            samples.restart.append(time.monotonic() - began)
            samples.restart_cpu.append(usage(tree(part.pid)).cpu_ns / 1e9)
            say(f"restart {number + 1}: {samples.restart[-1]:.1f} s")
    finally:
        part.kill()
    return samples


def _restart(part: Part, url: str) -> None:
    """Stop the engine as its supervisor does, start it, and wait for the adapter's first answer."""
    os.kill(part.pid, signal.SIGTERM)
    deadline = time.monotonic() + _LIMIT_S
    while not part.has_ended() and time.monotonic() < deadline:
        time.sleep(_BLINK_S)
    part.kill()  # its children
    part.start()
    part.wait()
    body = {"model": "bench", "prompt": "Where is my parcel?", "max_tokens": 1}
    httpx.post(f"{url}/v1/completions", json=body, timeout=_LIMIT_S).raise_for_status()


def _with_adapter(port: int, adapter: Path) -> tuple[str, ...]:
    """vLLM as `engine.sh` starts it for adapters on a CPU, and with the adapter on its command line."""
    return (
        *("env", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_ENABLE_V1_MULTIPROCESSING=0"),
        *("OMP_NUM_THREADS=1", str(ROOT / ".venv-engine" / "bin" / "vllm"), "serve", str(MODEL)),
        *("--host", "127.0.0.1", "--port", str(port), "--served-model-name", _ID, "--dtype", "bfloat16"),
        *("--disable-uvicorn-access-log", "--enable-lora", "--max-lora-rank", str(_RANK)),
        *("--max-loras", "8", "--max-cpu-loras", "24", "--max-model-len", "1024", "--max-num-batched-tokens", "1024"),
        *("--kv-cache-memory-bytes", str(256 * 1024 * 1024), "--distributed-executor-backend", "uni"),
        *("--max-num-seqs", "8", "--lora-modules", f"bench={adapter.resolve()}"),
    )
