"""Adapters, the gate, versions and the routes that serve them."""

from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic import AwareDatetime, JsonValue

from pipeline.records.base import BusinessKey, Message, Record, Sha256, Share


class BaseModelRef(Record):
    """The base model that adapters are trained on and engines serve."""

    id: str
    revision: str
    digest: Sha256
    """Over its weights and tokenizer files."""


class Method(StrEnum):
    """How an adapter was trained."""

    SFT = "sft"
    DPO = "dpo"
    KTO = "kto"


class Adapter(Record):
    """A trained LoRA adapter: one immutable folder, named by its content, under the adapters folder."""

    sha256: Sha256
    """Over the names and bytes of `adapter_config.json` and `adapter_model.safetensors`."""
    business: BusinessKey
    base: BaseModelRef
    rank: int
    method: Method
    snapshot_id: Sha256
    training_id: Sha256
    """Over everything that determines the training: the same id is never trained twice."""
    parent_sha256: Sha256 | None
    """The adapter that training started from; None when it started from the base."""
    metrics: dict[str, float]


class Fingerprint(Record):
    """Sum of log-probabilities of a few texts, as a reference engine gave them when the adapter was registered."""

    texts: tuple[str, ...]
    base_logprobs: tuple[float, ...]
    adapter_logprobs: tuple[float, ...]


class EvalItem(Record):
    """One question with what an answer to it is scored against."""

    item_id: str
    set_name: Literal["held_out", "recent", "golden", "sycophancy", "general"]
    """The last two are probes."""
    user_key: str
    """The cluster of the statistics: the user, or the item itself in the golden suite and among the probes."""
    messages: tuple[Message, ...]
    tools: tuple[dict[str, JsonValue], ...] = ()
    reference: str | None = None
    """An accepted or edited answer."""
    rejected: str | None = None
    checks: tuple[dict[str, JsonValue], ...] = ()
    """Golden checks, as `pipeline.dataset.suite` reads them."""


class ItemScores(Record):
    """What both sides scored on one item, by metric name; a metric that one of them lacks is compared for neither."""

    item: EvalItem
    baseline: dict[str, float]
    candidate: dict[str, float]


class ScoredItem(ItemScores):
    """Both answers to one item and their scores."""

    baseline_answer: str
    candidate_answer: str


class MissingReason(StrEnum):
    """Why an item got no answer."""

    UNSUPPORTED = "unsupported"
    """It holds more than text, such as an image: neither side is asked."""
    TOO_LONG = "too_long"
    """It does not fit into the engine's context."""
    REFUSED = "refused"
    """The engine takes no such request."""
    FAILED = "failed"
    """No answer came in all tries, although the engine was there."""


Side: TypeAlias = Literal["baseline", "candidate", "both"]


class MissingItem(ItemScores):
    """An item that left the comparison for both sides, because one of them or both gave no answer.

    Its only score is `unanswered`: 1 for the side without an answer, else 0. What neither was asked has none.
    """

    side: Side
    """Whose answer is missing."""
    reason: MissingReason
    """Where both are missing for different reasons: the candidate's."""


class MissingCount(Record):
    """How many items left the comparison for one reason."""

    side: Side
    reason: MissingReason
    items: int


class JudgeTally(Record):
    """How pairs of answers came out before a judge that was asked about each in both orders."""

    wins: int = 0
    """The first side's answer (the candidate's, or the one that a person preferred) is better, in both orders."""
    losses: int = 0
    ties: int = 0
    """Neither is better in either order, or both answers are the same."""
    order_disagreements: int = 0
    """The verdict changed with the order: counts as a tie."""
    spoke_to_judge: int = 0
    """An answer tells the judge how to decide, and did not lose: counts as a tie."""
    unparsable: int = 0
    """A reply was no verdict: counts for neither side, like the next two."""
    unsuitable: int = 0
    """The judge takes no such pair, for instance because it is too long for it."""
    unjudged: int = 0
    """Not asked about: the budget was used up, or the judge was away."""

    @property
    def judged(self) -> int:
        return self.wins + self.losses + self.ties + self.order_disagreements + self.spoke_to_judge

    @property
    def total(self) -> int:
        return self.judged + self.unparsable + self.unsuitable + self.unjudged


class Judging(Record):
    """What a judge said of an evaluation's answers, what its word is worth, and what it cost."""

    judge: str
    """Model and URL."""
    answers: JudgeTally
    """Candidate against baseline."""
    human_pairs: JudgeTally
    """Answers that users preferred against those they preferred them to, asked the same way."""
    human_users: int
    agreement: float | None
    """Share of human pairs on which the judge prefers what the user preferred (ties: half), each user once; None when
    there was none."""
    agreement_low: float | None
    agreement_high: float | None
    prompt_tokens: int
    """Of this run: rulings of an earlier one are kept and cost nothing again."""
    completion_tokens: int
    cost: float
    """Of this run, in `currency`; 0 where the configuration names no prices."""
    currency: str
    budget: float | None
    problem: str | None
    """Why it stopped before the end, other than for its budget."""


class JudgeDoubt(StrEnum):
    """Why a judge's verdict does not count."""

    UNAVAILABLE = "unavailable"
    """It was away, refused its key, or is no chat endpoint."""
    BUDGET_USED_UP = "budget_used_up"
    UNREADABLE = "unreadable"
    """More than a tenth of the pairs had no readable verdict."""
    FEW_HUMAN_PAIRS = "few_human_pairs"
    """Too few to measure whether it agrees with people."""
    LOW_AGREEMENT = "low_agreement"
    """It is not shown to agree with people as often as is asked for."""


class EvalResult(Record):
    """Candidate and baseline on the same items, same prompt, seed and decoding."""

    business: BusinessKey
    baseline: str
    candidate: str
    items: tuple[ScoredItem, ...]
    missing: tuple[MissingItem, ...] = ()
    """Together with `items` and `probes` all that was to be compared."""
    seed: int
    probes: tuple[ScoredItem, ...] = ()
    """Fixed questions of tuneloop's own, each scored by its set's metric and as answered."""
    judging: Judging | None = None
    """None where no judge is configured."""


class Check(Record):
    """One comparison, candidate minus baseline, with its confidence interval."""

    metric: str
    role: Literal["primary", "guardrail", "information"]
    estimate: float | None
    """Mean difference, in the metric's unit; None when there was no data."""
    low: float | None
    high: float | None
    margin: float
    """How much worse a guardrail may be, or how much better the primary must be."""
    items: int
    users: int
    smallest_effect: float | None
    """The smallest true difference that this many users would have shown in nineteen nights of twenty."""
    passed: bool | None
    """None: no evidence."""


class Verdict(StrEnum):
    """What was decided."""

    PROMOTE = "promote"
    REJECT = "reject"
    INCONCLUSIVE = "inconclusive"


class GateDecision(Record):
    """The verdict on a candidate, with every check that it rests on."""

    decision_id: Sha256
    business: BusinessKey
    baseline: str
    candidate: str
    verdict: Verdict
    reason: str
    """One sentence for a person."""
    checks: tuple[Check, ...]
    asked: int = 0
    """Items that were to be compared, those without an answer included."""
    missing: tuple[MissingCount, ...] = ()
    """Items of these that one side or both gave no answer to; they count for neither, except in `unanswered`."""
    seed: int
    judge_doubts: tuple[JudgeDoubt, ...] = ()
    """Why the judge's verdict does not count; empty where it does, or where there is no judge."""
    judging: Judging | None = None
    """As in `EvalResult`. `decision_id` is not over it: a second run costs less and decides the same."""


class StepEvidence(Record):
    """What one step of a canary has shown: candidate and control at the same share and time."""

    share: Share
    """0 while the version was in shadow."""
    started_at: AwareDatetime
    ended_at: AwareDatetime | None
    """None while the step goes on."""
    candidate_users: int
    control_users: int
    checks: tuple[Check, ...]
    """Candidate minus control, as `evals.online` names the metrics."""
    is_ab: bool = False
    """An A/B test, which is measured and promotes nothing."""


class RolloutReport(Record):
    """How one version was brought to one business: all that its page shows."""

    business: BusinessKey
    version: int
    previous_version: int | None
    """What was in service before, and is what a rollback returns to; None for the base model."""
    state: Literal["canary", "paused", "done", "rolled_back", "ended"]
    """`ended`: an A/B test was over, and the previous version serves everybody again."""
    reason: str
    """One sentence for a person: why the rollout stands where it stands."""
    started_at: AwareDatetime
    steps: tuple[StepEvidence, ...]


class ModelVersion(Record):
    """An adapter in the registry."""

    business: BusinessKey
    version: int
    adapter: Adapter
    gate: Verdict | Literal["pending"]
    fingerprint: Fingerprint | None
    aliases: tuple[str, ...]
    override: str | None = None
    """Tag `override`: who lets it into service against the gate's verdict, and why."""
    learned_erased: bool = False
    """Tag `erased_trained`: it, or an adapter that it goes on from, learned from a user who is erased now."""

    @property
    def serving_name(self) -> str:
        """Immutable name on the engines: `{business}-v{version}-{first 8 hex of the adapter's sha256}`."""
        return f"{self.business}-v{self.version}-{self.adapter.sha256[:8]}"


class NightEnd(StrEnum):
    """How a nightly run ended."""

    GATED = "gated"
    TOO_FEW_ROWS = "too_few_rows"
    """The snapshot is too small to train on; the adapter in service stays."""


class Night(Record):
    """What one nightly run of one business came to."""

    business: BusinessKey
    night: AwareDatetime
    """When it was due; a run that is repeated keeps it, and so finds its own snapshot and training again."""
    end: NightEnd
    snapshot_id: Sha256
    train_rows: int
    version: int | None = None
    verdict: Verdict | None = None
    reason: str
    report: str | None = None
    """File name of its page under the business's reports folder."""
    quarantined: int = 0
    """Interactions that were left out because their feedback looks like poison."""


class Target(Record):
    """What one arm is served by."""

    model: str
    """Name dispatched to the engine: a serving name, or the base model's id."""
    version: int | None
    """Registry version; None for the base model."""
    replicas: tuple[str, ...]
    """Base URLs of the engines proven to serve it."""


class Route(Record):
    """What the gateway does for one business."""

    business: BusinessKey
    stable: Target
    candidate: Target | None = None
    share: Share = 0.0
    """Share of users on the candidate; control has the same share at the other end of the hash range."""
    salt: str = ""
    """The rollout's salt of the assignment hash."""
    shadow: Share = 0.0
    """Share of the requests that are repeated on the candidate once the user has the answer."""
    previous: Target | None = None
    """The adapter that a rollback of the last promotion returns to. It serves nobody; it stands here so that a
    rollback needs no registry."""


class Routes(Record):
    """All routes. A gateway keeps the table with the highest generation it has seen."""

    generation: int
    routes: tuple[Route, ...]
