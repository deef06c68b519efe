"""Configuration: YAML files and the environment become typed values; an impossible value stops here.

`load_config(directory)` reads `tuneloop.yaml` and every file of `businesses/`, collects *all* mistakes and raises
one `ConfigError` that names file, key, value and mend. `Settings` is the only reader of the environment; it holds
nothing but secrets.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar
from zoneinfo import ZoneInfo, available_timezones

import yaml
from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipeline.clean.pii_config import PiiConfig
from pipeline.errors import ConfigError
from pipeline.records import BusinessKey, Record, Share
from pipeline.train.recipe import Recipe


def _known_zone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError("no such time zone; use an IANA name such as Asia/Shanghai")
    return name


def _valid_cron(expression: str) -> str:
    try:
        CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(f"no valid cron expression ({error}); example: '0 2 * * *'") from error
    return expression


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
    poll_s: float = Field(5.0, gt=0)
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


class DatasetConfig(Record):
    """How feedback becomes a snapshot."""

    window_days: float = Field(14.0, gt=0)
    recent_days: float = Field(1.0, ge=0)
    """Newest part of the window that is scored as a second set and not trained on."""
    min_rows: int = Field(50, ge=1)
    min_users: int = Field(1, ge=1)
    """Distinct users behind a claim."""
    max_user_share: Share = 0.02
    max_user_rows_floor: int = Field(3, ge=1)
    held_out_share: Share = 0.1
    near_duplicate_threshold: float = Field(0.8, ge=0.5, le=1)
    """Jaccard index of the shingles of near texts; what is less than half alike is no duplicate in any sense."""


class PoisonConfig(Record):
    """When feedback is held back until a person has looked (`tuneloop quarantine`)."""

    enabled: bool = True
    """False finds nothing new; what is held or dropped already stays out."""
    false_alarms: float = Field(0.001, gt=0, lt=1)
    """Chance, for each kind of finding, that a night of honest users has one; smaller holds less. 0.001 is one false
    alarm of a kind in three years of nights."""
    min_signals: int = Field(8, ge=3)
    """Fewer signals of a user, or of users who act alike, are never held."""
    own_sites: frozenset[str] = frozenset()
    """Sites, such as shop.example, that edits may link to as often as they like. What the business's own answers link
    to need not be named."""


class JudgeConfig(Record):
    """A model that says which of two answers is better, behind any OpenAI-compatible endpoint.

    Prompts (without personal data) and answers are sent there. Its API key is `TUNELOOP_JUDGE_KEY` in the environment.
    """

    url: Annotated[str, Field(pattern=r"^https?://\S+$")]
    """Base URL, with or without `/v1`."""
    model: str
    max_items: int = Field(100, ge=1)
    """Pairs of candidate's and baseline's answers; each takes two requests."""
    human_pairs: int = Field(100, ge=0)
    """Held-out preferences of users that its agreement is measured on."""
    min_human_pairs: int = Field(30, ge=2)
    """With fewer its verdict is information only."""
    min_agreement: float = Field(0.55, ge=0.5, lt=1)
    """Its verdict is information only where the lower bound of its agreement with users is below this. A coin agrees by
    half."""
    prompt_price: float = Field(0.0, ge=0)
    """Per million tokens."""
    completion_price: float = Field(0.0, ge=0)
    """Per million tokens."""
    currency: str = "USD"
    budget: float | None = Field(None, gt=0)
    """Of one evaluation. Requests in flight when it is used up, `concurrency` at most, come on top."""
    concurrency: int = Field(4, ge=1)

    @model_validator(mode="after")
    def _prices_have_a_budget(self) -> "JudgeConfig":
        if bool(self.prompt_price or self.completion_price) != (self.budget is not None):
            raise ValueError("`budget` goes with `prompt_price` and `completion_price`; name both or neither")
        return self


class ProbesConfig(Record):
    """How many of tuneloop's own fixed questions both sides are asked; those in the business's language come first."""

    sycophancy: int = Field(60, ge=0)
    """Each takes two requests: with the user's false claim, and without."""
    general: int = Field(80, ge=0)


GuardrailMetric: TypeAlias = Literal[
    "golden",
    "chrf",
    "refusal",
    "unanswered",
    "empty",
    "repetition",
    "pii_leak",
    "length_ratio",
    "sycophancy",
    "general",
]
"""Scores of answers' texts; `evals.metrics` says what each one means. The last two are scores of the probes."""


_UNANSWERED = 0.02


class GateConfig(Record):
    """When a candidate may replace the adapter in service."""

    primary: Literal["golden", "chrf", "judge"] = "golden"
    """`golden`: share of an item's checks passed. `chrf`: similarity to the accepted or edited answer. `judge`:
    comparisons won before the judge of the section `judge`, which counts only where it is shown to agree with users."""
    goal: Literal["better", "not_worse"] = "better"
    margin: float = Field(0.0, ge=0)
    """How much better the primary must be, or how much worse it may be."""
    guardrails: dict[GuardrailMetric, Annotated[float, Field(ge=0)]] = {
        "refusal": 0.05,
        "unanswered": _UNANSWERED,
        "empty": 0.03,
        "repetition": 0.05,
        "pii_leak": 0.02,
        "length_ratio": 1.0,
        "sycophancy": 0.15,
        "general": 0.15,
    }
    """Metric to the margin by which it may be worse. `unanswered` is always among them. These margins are what 300
    questions of 120 users can show: with narrower ones most candidates that harm nobody stay inconclusive
    (`make bench-gate`)."""
    judge: JudgeConfig | None = None
    probes: ProbesConfig = ProbesConfig()
    confidence: float = Field(0.95, gt=0.5, lt=1)
    bootstrap_samples: int = Field(2000, ge=100)
    min_users: int = Field(30, ge=2)
    """With fewer users (a golden question counts as one) nothing is promoted, however alike they are: a tenth of all
    users, whom the candidate harms, is then missing among those asked with a probability of 5 % or more."""
    max_items: int = Field(400, ge=1)
    max_missing_share: Share = 0.1
    """Where more of the items are left without an answer by one side or both, nothing is promoted."""
    max_pairs: int = Field(40, ge=0)
    """Items that are also scored by log-probabilities, for information; 0 where the engine cannot."""
    max_tokens: int = Field(256, ge=1)
    seed: int = 0

    @field_validator("guardrails")
    @classmethod
    def _silence_is_always_harm(cls, guardrails: dict[GuardrailMetric, float]) -> dict[GuardrailMetric, float]:
        return {"unanswered": _UNANSWERED, **guardrails}

    @model_validator(mode="after")
    def _what_decides_is_measured(self) -> "GateConfig":
        if self.primary == "judge" and self.judge is None:
            raise ValueError("primary `judge` needs a section `judge` with its url and model")
        for probe in ("sycophancy", "general"):
            if probe in self.guardrails and getattr(self.probes, probe) == 0:
                raise ValueError(f"guardrail `{probe}` needs `probes.{probe}` above 0")
        return self


class StepConfig(Record):
    """One widening of a canary."""

    share: Share
    min_minutes: float = Field(ge=0)
    min_users: int = Field(ge=1)
    """Distinct users in each of candidate and control."""
    timeout_minutes: float = Field(gt=0)


class ShadowConfig(Record):
    """Before its canary a version answers copies of users' requests, seen by nobody."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Of the requests that are repeated."""
    tokens_per_hour: int = Field(100_000, ge=1)
    """Of prompts and answers together, that copies may take of the engines. `gateway.workers` divide it; each gateway
    of several hosts has its own."""
    max_answer_tokens: int = Field(512, ge=1)
    """A copy asks for no longer answer than this, nor than the client did."""
    min_minutes: float = Field(30.0, ge=0)
    min_users: int = Field(50, ge=1)
    """Distinct users whose requests were repeated."""
    timeout_minutes: float = Field(1440.0, gt=0)

    @property
    def step(self) -> StepConfig:
        """As a step of a rollout, one in which no user gets the candidate."""
        return StepConfig(
            share=0.0, min_minutes=self.min_minutes, min_users=self.min_users, timeout_minutes=self.timeout_minutes
        )


class RolloutConfig(Record):
    """How a promoted version is brought to the users."""

    auto_canary: bool = False
    shadow: ShadowConfig | None = None
    """None: a rollout begins with its first step."""
    steps: tuple[StepConfig, ...] = (
        StepConfig(share=0.05, min_minutes=30, min_users=100, timeout_minutes=1440),
        StepConfig(share=0.10, min_minutes=30, min_users=200, timeout_minutes=1440),
        StepConfig(share=0.30, min_minutes=60, min_users=400, timeout_minutes=1440),
        StepConfig(share=0.50, min_minutes=60, min_users=400, timeout_minutes=1440),
        StepConfig(share=1.00, min_minutes=30, min_users=200, timeout_minutes=1440),
    )
    alpha: float = Field(0.05, gt=0, lt=1)
    """Chance of rolling back a candidate that is no different, over all metrics and steps."""
    max_hard_failure_rate: Share = 0.05
    max_ttft_p90_ms: float = Field(5000.0, gt=0)

    @model_validator(mode="after")
    def _steps_widen(self) -> "RolloutConfig":
        shares = [step.share for step in self.steps]
        if not shares or shares != sorted(set(shares)) or shares[0] == 0.0 or shares[-1] != 1.0:
            raise ValueError("shares must be above 0, rise from step to step and end at 1.0")
        if any(0.5 < share < 1.0 for share in shares):
            raise ValueError("above 0.5 there is no control of equal size; the last compared step is 0.5, then 1.0")
        return self


Priority: TypeAlias = Literal["high", "normal", "low"]


class LimitsConfig(Record):
    """What a business may take of the gateway. None is no limit."""

    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0)
    """Of prompts and answers together, as the engines count them."""
    concurrent: int | None = Field(None, ge=1)
    """Requests that run at once; more of them wait."""
    waiting: int = Field(100, ge=0)
    """Requests that may wait for their turn; more of them are refused."""
    priority: Priority = "normal"
    """Its share of turns when the engines are full: high 16, normal 4, low 1."""


class BusinessConfig(Record):
    """One file of `businesses/`."""

    business: BusinessKey
    title: str
    language: Literal["en", "zh"]
    """Of the users' texts; decides the recognisers of personal data."""
    report_language: Literal["en", "zh"]
    timezone: Annotated[str, AfterValidator(_known_zone)]
    nightly: Annotated[str, AfterValidator(_valid_cron)]
    """Cron expression in the business's time zone."""
    retention_days: int = Field(90, ge=1)
    limits: LimitsConfig = LimitsConfig()
    pii: PiiConfig = PiiConfig()
    dataset: DatasetConfig = DatasetConfig()
    poison: PoisonConfig = PoisonConfig()
    training: Recipe = Recipe()
    gate: GateConfig = GateConfig()
    rollout: RolloutConfig = RolloutConfig()
    suite: Path | None = None
    """Golden suite, relative to the configuration folder."""

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


class Config(Record):
    """The whole configuration; functions take the section they need."""

    directory: Path
    system: SystemConfig
    businesses: dict[str, BusinessConfig]

    @property
    def state_dir(self) -> Path:
        """Absolute: processes started from elsewhere mean the same folder."""
        return self.system.state_dir.resolve()

    def business(self, key: str) -> BusinessConfig:
        """The business's configuration.

        Raises:
            ConfigError: there is no such business.
        """
        if key not in self.businesses:
            known = ", ".join(sorted(self.businesses))
            raise ConfigError(f"no business '{key}' in {self.directory / 'businesses'}; known: {known}")
        return self.businesses[key]


class JudgeSettings(BaseSettings):
    """The one secret that a comparison by hand needs."""

    model_config = SettingsConfigDict(env_prefix="TUNELOOP_", extra="ignore")

    judge_key: SecretStr = SecretStr("")
    """API key of the gate's judge, if it asks for one."""


class Settings(JudgeSettings):
    """Secrets, from the environment only. They are never written to a log, a config file or the registry."""

    user_salt: SecretStr
    """Salt of user, session and prompt keys; changing it makes every known user a new one."""
    admin_key: SecretStr
    """Key of the gateway's admin API."""
    webhook_secret: SecretStr
    """Signs MLflow's webhooks to the controller."""
    report_secret: SecretStr
    """Signs the links to reports."""
    engine_key: SecretStr = SecretStr("")
    """API key of the engines, if they were started with one."""
    mlflow_password: SecretStr = SecretStr("")
    """Of MLflow's account `admin`, in whose name tuneloop works there. Set, `tuneloop up` starts an MLflow that asks
    people to log in, so that it is known who clicked; empty, it asks nobody."""
    redis_url: SecretStr = SecretStr("")
    """Of the Redis that gateways of several hosts share, such as redis://:password@host:6379/0; empty on one host."""


SECRETS_FILE = "secrets.env"
"""In the state folder, owner-only: what `tuneloop up` made for one machine. The environment wins over it."""


def load_settings(state_dir: Path | None = None) -> Settings:
    """Read the secrets from the environment, or from the state folder's secrets file.

    Raises:
        ConfigError: one is missing; names the variables.
    """
    try:
        return Settings(_env_file=state_dir / SECRETS_FILE if state_dir else None)
    except ValidationError as error:
        missing = ", ".join(f"TUNELOOP_{str(e['loc'][0]).upper()}" for e in error.errors())
        raise ConfigError(
            f"environment: {missing} not set; `tuneloop up` makes secrets for one machine, elsewhere set them yourself"
        ) from error


def load_config(directory: Path) -> Config:
    """Read and check a configuration folder.

    Raises:
        ConfigError: names every wrong file, key and value, and what would be right.
    """
    if not (directory / "tuneloop.yaml").is_file():
        raise ConfigError(f"{directory / 'tuneloop.yaml'}: no such file; name the folder with --configs")
    mistakes: list[str] = []
    system = _read(directory / "tuneloop.yaml", SystemConfig, mistakes)
    if system and system.training.launch and not (directory / system.training.launch).is_file():
        name = directory / "tuneloop.yaml"
        mistakes.append(f"{name}: training.launch: '{system.training.launch}' is no file under {directory}")
    businesses: dict[str, BusinessConfig] = {}
    for path in sorted((directory / "businesses").glob("*.yaml")):
        config = _read(path, BusinessConfig, mistakes)
        if config is None:
            continue
        if config.business != path.stem:
            mistakes.append(f"{path}: business: '{config.business}' must be the file's name '{path.stem}'")
        if config.suite and not (directory / config.suite).is_file():
            mistakes.append(f"{path}: suite: '{config.suite}' is no file under {directory}")
        if system and config.training.rank > max(e.max_rank for e in system.engines if e.serves != "base"):
            mistakes.append(f"{path}: training.rank: {config.training.rank} is above every engine's max_rank")
        businesses[config.business] = config
    if not businesses and not mistakes:
        mistakes.append(f"{directory / 'businesses'}: no business; add a file such as support.yaml")
    if mistakes or system is None:
        raise ConfigError("\n".join(mistakes))
    return Config(directory=directory, system=system, businesses=businesses)


def load_business(path: Path) -> BusinessConfig:
    """Read and check one file of `businesses/` by itself.

    Raises:
        ConfigError: there is no such file, or it holds wrong keys or values; names them all.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; name one of a configuration's `businesses/`")
    mistakes: list[str] = []
    config = _read(path, BusinessConfig, mistakes)
    if config is None:
        raise ConfigError("\n".join(mistakes))
    return config


_Section = TypeVar("_Section", bound=Record)


def _read(path: Path, kind: type[_Section], mistakes: list[str]) -> _Section | None:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mistakes.append(f"{path}: not readable as YAML: {' '.join(str(error).split())}")
        return None
    if not isinstance(value, Mapping):
        mistakes.append(f"{path}: must hold `key: value` lines, found {type(value).__name__}")
        return None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        mistakes.extend(_explain(path, e) for e in error.errors())
        return None


def _explain(path: Path, error: ErrorDetails) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "(whole file)"
    if error["type"] == "extra_forbidden":
        return f"{path}: {key}: unknown key (value {error['input']!r}); remove it or mend its spelling"
    if error["type"] == "missing":
        return f"{path}: {key}: missing; add it"
    return f"{path}: {key}: {error['input']!r} is impossible: {error['msg']}"


_QUIET_AND_OFFLINE = {
    "DO_NOT_TRACK": "1",
    "GIT_PYTHON_REFRESH": "quiet",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # Two OpenMP threads on two shared cores are 5 to 15 times slower than one: they spin at every barrier.
    "OMP_NUM_THREADS": "1",
}


def child_environment(config: Config, settings: Settings) -> dict[str, str]:
    """The environment of a process that tuneloop starts: the caller's, the secrets, no telemetry, no network."""
    secrets = {
        f"TUNELOOP_{name.upper()}": getattr(settings, name).get_secret_value() for name in type(settings).model_fields
    }
    return {
        **os.environ,
        **_QUIET_AND_OFFLINE,
        **secrets,
        "MLFLOW_TRACKING_URI": config.system.mlflow.url,
        "PREFECT_API_URL": f"{config.system.prefect.url}/api",
    }
