"""What a training runs on and what it takes of it."""

import resource
import time
from importlib.metadata import version

import torch

_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate")


def device_name() -> str:
    """`cpu`, or the name of the first GPU and how many there are."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"


def package_versions() -> dict[str, str]:
    """Of what an adapter's bytes depend on besides the device."""
    return {name: version(name) for name in _PACKAGES}


class Meter:
    """Reads the process's own figures at each step. MLflow shows what is named `system/…` in a tab of its own."""

    def __init__(self) -> None:
        self.readings: list[dict[str, float]] = []
        self._seconds, self._cpu_seconds = time.monotonic(), time.process_time()

    def read(self, step: int) -> None:
        """Take the figures of the time since the last reading."""
        seconds, cpu_seconds = time.monotonic(), time.process_time()
        took = max(seconds - self._seconds, 1e-9)
        reading = {
            "step": float(step),
            "system/seconds_per_step": took,
            "system/cpu_cores": (cpu_seconds - self._cpu_seconds) / took,
            "system/peak_memory_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # Linux: KiB
        }
        if torch.cuda.is_available():
            reading["system/gpu_peak_memory_megabytes"] = torch.cuda.max_memory_allocated() / 2**20
        self.readings.append(reading)
        self._seconds, self._cpu_seconds = seconds, cpu_seconds
