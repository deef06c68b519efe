"""One file of `businesses/`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field

from pipeline.clean.pii_config import PiiConfig
from pipeline.config.gate import GateConfig
from pipeline.config.rollout import RolloutConfig
from pipeline.records import BusinessKey, Record, Share
from pipeline.train.recipe import Recipe


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
