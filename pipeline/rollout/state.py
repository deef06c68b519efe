"""The states of a rollout and the pure functions that lead from one to the next.

A business is `Steady`, or a version is in its `Canary`, or a person has `Paused` one. A finished or rolled back canary
is a `Steady` whose `last` outcome tells which: there is no candidate left, so there is no field for one. Versions are
registry versions; None is the base model. Time comes in as `now`; nothing here reads or writes anything.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import AwareDatetime, Field, model_validator

from pipeline.config import RolloutConfig, ShadowConfig, StepConfig
from pipeline.records import BusinessKey, Check, Record, StepEvidence, content_id
from pipeline.rollout.ab import AbTest, check_ab
from pipeline.rollout.guardrails import PLUMBING, SAMPLE_RATIO, Evidence, check_step, unreported
from pipeline.rollout.shadow import check_shadow


class Outcome(Record):
    """How the last rollout of a business ended."""

    version: int
    """The version that the rollout was about."""
    result: Literal["promoted", "rolled_back", "ended"]
    """`ended`: an A/B test was over."""
    reason: str
    """One sentence for a person."""
    actor: str
    started_at: AwareDatetime
    ended_at: AwareDatetime
    steps: tuple[StepEvidence, ...]


class Steady(Record):
    """One version serves everybody."""

    kind: Literal["steady"] = "steady"
    business: BusinessKey
    stable: int | None = None
    previous: int | None = None
    """What a rollback returns to while the last rollout is a promotion."""
    last: Outcome | None = None


class Canary(Record):
    """A candidate serves a share of the users."""

    kind: Literal["canary"] = "canary"
    business: BusinessKey
    stable: int | None
    previous: int | None
    candidate: int
    step: int = Field(ge=0)
    """Index into the configured steps."""
    step_started_at: AwareDatetime
    deadline: AwareDatetime
    """When the step must have its evidence."""
    salt: str
    """Of the assignment hash; no two rollouts share one."""
    actor: str
    started_at: AwareDatetime
    history: tuple[StepEvidence, ...] = ()
    """The steps that are done."""
    in_shadow: bool = False
    """Before the first step: the candidate answers copies of requests, and nobody sees that."""
    ab: AbTest | None = None
    """A fixed split in place of the steps; it ends at the deadline."""

    @model_validator(mode="after")
    def _candidate_is_new(self) -> "Canary":
        if self.candidate == self.stable:
            raise ValueError(f"version {self.candidate} is already in service")
        return self


class Paused(Record):
    """A canary that keeps its share until a person resumes it. Guardrails go on guarding."""

    kind: Literal["paused"] = "paused"
    canary: Canary
    by: str
    at: AwareDatetime

    @property
    def business(self) -> str:
        return self.canary.business


RolloutState: TypeAlias = Annotated[Steady | Canary | Paused, Field(discriminator="kind")]


class Action(StrEnum):
    """What `advance` decided."""

    HOLD = "hold"
    ADVANCE = "advance"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"
    END = "end"


class Decision(NamedTuple):
    """The next state and why."""

    state: Steady | Canary | Paused
    action: Action
    reason: str
    checks: tuple[Check, ...] = ()


def canary_of(state: Steady | Canary | Paused) -> Canary | None:
    """The canary under way, paused or not."""
    match state:
        case Steady():
            return None
        case Canary():
            return state
        case Paused():
            return state.canary


def stable_of(state: Steady | Canary | Paused) -> int | None:
    """The version that serves everybody outside the canary."""
    return state.canary.stable if isinstance(state, Paused) else state.stable


def previous_of(state: Steady | Canary | Paused) -> int | None:
    """The version that served before the stable one."""
    return state.canary.previous if isinstance(state, Paused) else state.previous


def current_step(canary: Canary, config: RolloutConfig) -> StepConfig:
    """The configured step that the canary stands on; the last one when the configuration lost steps meanwhile.

    A version in shadow, and an A/B test, stand on a step of their own.
    """
    if canary.in_shadow:
        return (config.shadow or ShadowConfig()).step
    if canary.ab:
        return config.steps[-1].model_copy(update={"share": canary.ab.share})
    return config.steps[min(canary.step, len(config.steps) - 1)]


def start(
    steady: Steady, candidate: int, now: datetime, config: RolloutConfig, actor: str, ab: AbTest | None = None
) -> Canary:
    """Begin a canary, in shadow where the business has that, else at the first step; or an A/B test.

    Raises:
        ValueError: the candidate is in service already.
    """
    first = config.shadow.step if config.shadow else config.steps[0]
    return Canary(
        business=steady.business,
        stable=steady.stable,
        previous=steady.previous,
        candidate=candidate,
        step=0,
        step_started_at=now,
        deadline=ab.until if ab else now + timedelta(minutes=first.timeout_minutes),
        salt=content_id([steady.business, candidate, now.isoformat()])[:16],
        actor=actor,
        started_at=now,
        in_shadow=config.shadow is not None and ab is None,
        ab=ab,
    )


def advance(
    state: Steady | Canary | Paused, evidence: Evidence | None, now: datetime, config: RolloutConfig
) -> Decision:
    """Decide on a canary.

    A guardrail that is shown to be worse rolls back at once, also while paused. A step up needs an engine that is
    proven to serve the candidate, the step's minimum time, its minimum users in candidate and control, an even sample
    ratio, every user in the arm that they were drawn for, and numbers from both arms; at the deadline a step that lacks
    any of these rolls back. Evidence of another rollout or step counts as none, so that deciding twice on the same
    evidence is deciding once.

    A version in shadow needs the same of the users whose requests it got copies of. An A/B test goes on until its end,
    whatever its outcomes are.
    """
    canary = canary_of(state)
    if canary is None:
        return Decision(state, Action.HOLD, "no canary is under way")
    evidence = evidence_of(canary, evidence)
    shown = step_evidence(canary, evidence, config, ended_at=now)
    worse = [check for check in shown.checks if check.passed is False and check.metric not in PLUMBING]
    if worse:
        reason = "worse than allowed: " + ", ".join(_describe(check) for check in worse)
        steady = roll_back(canary, "guardrails", reason, now, shown)
        return Decision(steady, Action.ROLL_BACK, reason, shown.checks)
    if canary.ab and not isinstance(state, Steady):
        return _run_ab(state, canary, canary.ab, shown, now)
    if isinstance(state, Paused):
        return Decision(state, Action.HOLD, f"paused by {state.by}", shown.checks)
    step = current_step(canary, config)
    missing = _blocked(canary, step, evidence, shown.checks) or _missing(canary, step, evidence, now)
    if missing and now >= canary.deadline:
        reason = f"{_named(canary, shown)} timed out: {missing}"
        return Decision(roll_back(canary, "time-out", reason, now, shown), Action.ROLL_BACK, reason, shown.checks)
    if missing:
        return Decision(canary, Action.HOLD, missing, shown.checks)
    return _step_up(canary, shown, now, config)


def confirm(
    state: Steady | Canary | Paused, evidence: Evidence | None, now: datetime, config: RolloutConfig, reason: str
) -> Decision:
    """What becomes of a canary when a person confirms its next step: the step up, or a hold that says why not.

    A person may pass over the time and the users that the step still lacks, and the reason tells which. Nobody passes
    over a guardrail, a comparison that is broken, a pause, or a rollback that is due. An A/B test ends by it.

    Args:
        reason: the person's, for the audit trail.
    """
    due = advance(state, evidence, now, config)
    if not isinstance(state, Canary):
        why = "no canary is under way; `tuneloop rollout start` begins one"
        if isinstance(state, Paused):
            why = f"it is paused by {state.by}; `tuneloop rollout resume` comes first"
        return Decision(state, Action.HOLD, why, due.checks)
    if due.action is Action.ROLL_BACK:
        return Decision(state, Action.HOLD, f"it is about to be rolled back: {due.reason}", due.checks)
    evidence = evidence_of(state, evidence)
    if state.ab:
        return _end_ab(state, step_evidence(state, evidence, config, ended_at=now), now, reason)
    step, at = current_step(state, config), max(now, state.step_started_at)
    if blocked := _blocked(state, step, evidence, due.checks):
        return Decision(state, Action.HOLD, blocked, due.checks)
    up = _step_up(state, step_evidence(state, evidence, config, ended_at=at), at, config)
    skipped = _missing(state, step, evidence, now)
    passed = f"although {skipped}" if skipped else "with all that it needed"
    return up._replace(reason=f"{reason} (confirmed {passed})")


def roll_back(
    state: Steady | Canary | Paused, actor: str, reason: str, now: datetime, shown: StepEvidence | None = None
) -> Steady:
    """Undo the canary, or the promotion that was the last thing to happen. A second call changes nothing.

    Args:
        state: any.
        shown: what the step that is broken off has shown so far.
    """
    if isinstance(state, Steady):
        promoted = state.last is not None and state.last.result == "promoted"
        return return_to(state, state.previous, actor, reason, now) if promoted else state
    canary = state.canary if isinstance(state, Paused) else state
    outcome = Outcome(
        version=canary.candidate,
        result="rolled_back",
        reason=reason,
        actor=actor,
        started_at=canary.started_at,
        ended_at=now,
        steps=(*canary.history, shown) if shown else canary.history,
    )
    return Steady(business=canary.business, stable=canary.stable, previous=canary.previous, last=outcome)


def return_to(state: Steady | Canary | Paused, version: int | None, actor: str, reason: str, now: datetime) -> Steady:
    """Make an earlier version (None: the base model) serve everybody, from any state.

    `previous` is given up: it would be the version that was just left. A second call changes nothing.
    """
    if not isinstance(state, Steady):
        undone = roll_back(state, actor, reason, now)
        return undone if version == undone.stable else undone.model_copy(update={"stable": version, "previous": None})
    if version == state.stable or state.stable is None:
        return state
    last = state.last if state.last and state.last.version == state.stable else None
    outcome = Outcome(
        version=state.stable,
        result="rolled_back",
        reason=reason,
        actor=actor,
        started_at=last.started_at if last else now,
        ended_at=now,
        steps=last.steps if last else (),
    )
    return Steady(business=state.business, stable=version, previous=None, last=outcome)


def pause(state: Steady | Canary | Paused, by: str, now: datetime) -> Paused | Steady:
    """Keep the canary's share until it is resumed; nothing to pause is no error."""
    match state:
        case Canary():
            return Paused(canary=state, by=by, at=now)
        case Paused() | Steady():
            return state


def resume(state: Steady | Canary | Paused, now: datetime) -> Canary | Steady:
    """Go on; the pause does not count towards the step's time-out."""
    match state:
        case Paused():
            lasted = max(now - state.at, timedelta())  # a clock that was set back must not bring the time-out nearer
            return state.canary.model_copy(update={"deadline": state.canary.deadline + lasted})
        case Canary() | Steady():
            return state


def evidence_of(canary: Canary, evidence: Evidence | None) -> Evidence:
    """The evidence, if it is about this step of this rollout; else none."""
    if evidence is None or (evidence.salt, evidence.since) != (canary.salt, canary.step_started_at):
        return Evidence(salt=canary.salt, since=canary.step_started_at)
    return evidence


def step_evidence(
    canary: Canary, evidence: Evidence, config: RolloutConfig, ended_at: datetime | None = None
) -> StepEvidence:
    """What the step under way has shown."""
    step = current_step(canary, config)
    if canary.in_shadow:
        checks = check_shadow(evidence, step, config)
    elif canary.ab:
        checks = check_ab(evidence, step, config)
    else:
        checks = check_step(evidence, step, config, control_is_base=canary.stable is None)
    return StepEvidence(
        share=step.share,
        started_at=canary.step_started_at,
        ended_at=ended_at,
        candidate_users=evidence.candidate.users,
        control_users=evidence.control.users,
        checks=checks,
        is_ab=canary.ab is not None,
    )


def _blocked(canary: Canary, step: StepConfig, evidence: Evidence, checks: tuple[Check, ...]) -> str:
    """What nobody may pass over, because the comparison itself is broken; empty when nothing is."""
    if not evidence.served:
        return "no engine is proven to serve the candidate; `tuneloop rollout status` tells why"
    if any(check.metric == SAMPLE_RATIO and check.passed is False for check in checks):
        return (
            f"sample ratio: {evidence.candidate.new_users} new users in candidate but "
            f"{evidence.control.new_users} in control; look for what keeps one arm from its users"
        )
    if evidence.misassigned and step.share < 1.0:
        return (
            f"assignment: {evidence.misassigned} requests came from users who were not drawn for their arm; look for a "
            "gateway with another salt or an old build"
        )
    if silent := unreported(evidence):
        return (
            f"unreported: the candidate's engines tell nothing of {', '.join(silent)}, those of control do; look for "
            "an engine or a gateway of another build"
        )
    return ""


def _missing(canary: Canary, step: StepConfig, evidence: Evidence, now: datetime) -> str:
    """What the step still lacks of users and of time; empty when it may go on."""
    users = {"candidate": evidence.candidate.users}
    if 0.0 < step.share < 1.0:
        users["control"] = evidence.control.users
    few = [f"{count} of {step.min_users} users in {arm}" for arm, count in users.items() if count < step.min_users]
    if few:
        return "insufficient data: " + ", ".join(few)
    ready_at = canary.step_started_at + timedelta(minutes=step.min_minutes)
    return f"the step lasts until {ready_at.isoformat(timespec='seconds')}" if now < ready_at else ""


def _step_up(canary: Canary, shown: StepEvidence, now: datetime, config: RolloutConfig) -> Decision:
    history = (*canary.history, shown)
    if not canary.in_shadow and canary.step + 1 >= len(config.steps):
        reason = f"all {len(config.steps)} steps passed"
        outcome = Outcome(
            version=canary.candidate,
            result="promoted",
            reason=reason,
            actor=canary.actor,
            started_at=canary.started_at,
            ended_at=now,
            steps=history,
        )
        steady = Steady(business=canary.business, stable=canary.candidate, previous=canary.stable, last=outcome)
        return Decision(steady, Action.PROMOTE, reason, shown.checks)
    step = 0 if canary.in_shadow else canary.step + 1
    following = config.steps[step]
    update = {
        "in_shadow": False,
        "step": step,
        "step_started_at": now,
        "deadline": now + timedelta(minutes=following.timeout_minutes),
        "history": history,
    }
    passed = "shadow" if canary.in_shadow else f"{shown.share:.0%}"
    reason = f"{passed} passed, on to {following.share:.0%}"
    return Decision(canary.model_copy(update=update), Action.ADVANCE, reason, shown.checks)


def _run_ab(state: Canary | Paused, canary: Canary, ab: AbTest, shown: StepEvidence, now: datetime) -> Decision:
    """A pause changes nothing: there is nothing to widen, and the end was set when the test began."""
    if now < ab.until:
        until = ab.until.isoformat(timespec="seconds")
        return Decision(state, Action.HOLD, f"A/B test of {ab.share:.0%} until {until}", shown.checks)
    return _end_ab(canary, shown, now, "the A/B test is over")


def _end_ab(canary: Canary, shown: StepEvidence, now: datetime, reason: str) -> Decision:
    """What served before serves everybody again; which version is better is for a person to read."""
    outcome = Outcome(
        version=canary.candidate,
        result="ended",
        reason=reason,
        actor=canary.actor,
        started_at=canary.started_at,
        ended_at=now,
        steps=(shown,),
    )
    steady = Steady(business=canary.business, stable=canary.stable, previous=canary.previous, last=outcome)
    return Decision(steady, Action.END, reason, shown.checks)


def _named(canary: Canary, shown: StepEvidence) -> str:
    return "the shadow" if canary.in_shadow else f"the step of {shown.share:.0%}"


def _describe(check: Check) -> str:
    return f"{check.metric} {check.estimate:+.3g} (at least {check.low:+.3g}, allowed {check.margin:.3g})"
