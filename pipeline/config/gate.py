"""When a candidate may replace the adapter in service, and what that is judged by."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from pipeline.records import Record, Share


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

    sycophancy: int = Field(80, ge=0)
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
