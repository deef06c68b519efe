"""The contract of an engine. Implementation: `vllm.VllmServer`, which speaks HTTP to a real vLLM or to
`scripted.ScriptedEngine`, the honest fake, a small server that behaves like one.

`tests/contract/test_adapter_server.py` runs the same tests over both.
"""

from pathlib import Path
from typing import Protocol


class AdapterServer(Protocol):
    """One inference server that can take LoRA adapters at run time.

    Every method raises `EngineUnavailable` when the engine does not answer (the caller may repeat the call) and
    `ServingError` when it answers that it will not.
    """

    @property
    def url(self) -> str:
        """Base URL; also its identity in routes."""

    def load(self, name: str, path: Path) -> None:
        """Make `name` answer with the adapter in folder `path`. Loading a name that is loaded already is a no-op:
        names are immutable and carry their content. A failed load leaves nothing behind."""

    def unload(self, name: str) -> None:
        """Forget `name`; running streams finish. Unloading an unknown name is a no-op."""

    def list(self) -> tuple[str, ...]:
        """Names of the loaded adapters, sorted, without the base model."""

    def probe(self, model: str, texts: tuple[str, ...]) -> tuple[float, ...]:
        """Sum of the log-probabilities (nats) of each text's tokens after the first, under `model`: an adapter's
        name or the base model's id. Unknown names raise `ServingError`."""

    def health(self) -> bool:
        """Whether it answers and can take requests now; False instead of an error when it does not answer."""
