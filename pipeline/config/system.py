"""`tuneloop.yaml`: where things listen and where they keep what they know."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.records import Record, Share

Port = Annotated[int, Field(ge=1, le=65535)]
Url = Annotated[str, Field(pattern=r"^https?://[^/\s]+$")]


class BaseModelConfig(Record):
    """The base model that every adapter is trained on."""

    id: str
    """Its name in requests to the engines and in the registry."""
    revision: str
    path: Path
    """Folder in Hugging Face layout, relative to the working directory."""


class TracingConfig(Record):
    """Where OpenTelemetry spans go."""

    endpoint: Url
    """Of an OTLP/HTTP collector, such as http://127.0.0.1:4318."""
    share: Share = 1.0
    """Of the requests whose client has not decided by its own trace."""


class GatewayConfig(Record):
    """The data plane."""

    host: str = "127.0.0.1"
    port: Port = 8700
    admin_port: Port = 8701
    connect_timeout_s: float = Field(2.0, gt=0)
    first_token_timeout_s: float = Field(120.0, gt=0)
    between_tokens_timeout_s: float = Field(60.0, gt=0)
    max_body_mb: float = Field(8.0, gt=0)
    workers: int = Field(1, ge=1, le=64)
    """Processes that share the port; worker k has its admin API on `admin_port + k`."""
    max_running: int = Field(512, ge=1)
    """Requests that may be with the engines at once, of all businesses and workers together."""
    queue_timeout_s: float = Field(10.0, gt=0)
    """How long a request waits for its turn before it is told to come again."""
    settle_s: float = Field(1.0, ge=0)
    """For so long a new rollout draws nobody, while gateways tell each other of the conversations that began before
    it. A gateway that is the only one needs none."""
    shadow_busy_at: int = Field(8, ge=1)
    """A replica at which so many requests of this gateway's run is busy: it gets no copies for a version in shadow."""
    tracing: TracingConfig | None = None

    @model_validator(mode="after")
    def _ports_fit(self) -> "GatewayConfig":
        admin = self.admin_ports
        if admin[-1] > 65535 or self.port in admin:
            raise ValueError(f"admin_port to admin_port + workers - 1 ({admin[0]} to {admin[-1]}) must be free ports")
        return self

    @property
    def admin_ports(self) -> range:
        return range(self.admin_port, self.admin_port + self.workers)


class EngineConfig(Record):
    """One inference server."""

    name: str
    url: Url
    serves: Literal["base", "adapters", "both"] = "both"
    max_rank: int = 16
    max_adapters: int = Field(16, ge=1)


class ControllerConfig(Record):
    """The one leader that loads adapters, advances rollouts and writes routes."""

    host: str = "127.0.0.1"
    port: Port = 8702
    poll_s: float = Field(2.0, gt=0)
    """A promotion whose webhook was lost waits this long, and for the first second of its rollout: 5 s are promised."""
    gateways: tuple[Url, ...] = ()
    """Admin APIs that routes are pushed to, where gateways run on several hosts; without any, those of `gateway`."""


class ServerConfig(Record):
    """A stock server that tuneloop talks to."""

    url: Url


class TrainingConfig(Record):
    """How trainings are started on this machine; what they do is the business's recipe."""

    launch: Path | None = None
    """Configuration of `accelerate launch`, relative to the configuration folder. Without one a training takes every
    GPU there is, or one process on the CPU."""


class BurstConfig(Record):
    """When a gateway by itself stops sending new sessions to a candidate."""

    failures: int = Field(5, ge=1)
    within_s: float = Field(10.0, gt=0)


class SystemConfig(Record):
    """`tuneloop.yaml`."""

    state_dir: Path = Path("var")
    """Where everything is kept, relative to the working directory."""
    base_model: BaseModelConfig
    gateway: GatewayConfig = GatewayConfig()
    engines: tuple[EngineConfig, ...]
    controller: ControllerConfig = ControllerConfig()
    mlflow: ServerConfig = ServerConfig(url="http://127.0.0.1:8703")
    prefect: ServerConfig = ServerConfig(url="http://127.0.0.1:8704")
    training: TrainingConfig = TrainingConfig()
    burst: BurstConfig = BurstConfig()

    @model_validator(mode="after")
    def _someone_serves_each_kind(self) -> "SystemConfig":
        for kind in ("base", "adapters"):
            if not any(engine.serves in (kind, "both") for engine in self.engines):
                raise ValueError(f"no engine serves {kind}; give one of them `serves: {kind}` or `serves: both`")
        if len({engine.name for engine in self.engines}) < len(self.engines):
            raise ValueError("two engines have the same name")
        return self
