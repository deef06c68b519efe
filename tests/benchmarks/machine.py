"""Where a run took place: figures mean nothing without it."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a run."""

    cpu: str
    cores: int
    memory_gb: int
    kernel: str
    python: str

    def __str__(self) -> str:
        return f"{self.cores} cores ({self.cpu}), {self.memory_gb} GB, Linux {self.kernel}, Python {self.python}"

    @classmethod
    def this(cls) -> "Machine":
        """The one we run on."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(
            cpu=parse_model(Path("/proc/cpuinfo").read_text()),
            cores=os.cpu_count() or 1,
            memory_gb=round(memory / 2**30),
            kernel=platform.release(),
            python=platform.python_version(),
        )


def parse_model(cpuinfo: str) -> str:
    """The first CPU's model name."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
