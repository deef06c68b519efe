"""What comes next in a rollout, and why, on a terminal."""

from datetime import datetime

from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.records import Check
from pipeline.rollout.explanation import Explanation, StepView
from pipeline.rollout.forecast import Forecast
from pipeline.rollout.state import Action

_NEXT = {
    Action.HOLD: "stay as it is",
    Action.ADVANCE: "go on to the next step",
    Action.PROMOTE: "promote: serve everybody",
    Action.ROLL_BACK: "roll back",
    Action.END: "end the A/B test",
}
_SAYS = {True: "fine", False: "WORSE", None: "no evidence"}


def print_explanation(told: Explanation) -> None:
    """Print it all, the decision first."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"{told.business}: {_where(told)}")
    console.print(f"next:     {_NEXT[told.action]}: {told.reason}")
    if told.step is not None:
        _print_step(console, told.step, told.at)
    for one in told.forecasts:
        console.print(f"forecast: {_foreseen(one)}")
    for waiting in told.waits_for:
        console.print(f"engine:   {waiting}")
    for what, problem in told.problems.items():
        console.print(f"problem:  {what}: {problem}")
    if told.step is not None:
        console.print(_guardrails(told.step.checks))
        console.print("estimate: candidate less control, or the candidate's own rate; it rolls back when `at least` is")
        console.print("above `allowed`. The bounds hold however often one looks.")


def _where(told: Explanation) -> str:
    stable = "the base model" if told.stable is None else f"version {told.stable}"
    if told.step is None:
        asked = (
            f"; version {told.asked.version}, asked for by {told.asked.by}, waits for its engines" if told.asked else ""
        )
        return f"{stable} serves everybody{asked}"
    step = told.step
    paused = ", paused" if told.state == "paused" else ""
    if step.kind == "shadow":
        return f"version {step.version} in shadow{paused}, seen by nobody; {stable} serves everybody"
    what = "A/B test" if step.kind == "A/B test" else f"step {step.step} of {step.steps}"
    return f"version {step.version} at {step.share:.0%} ({what}{paused}) beside {stable}"


def _print_step(console: Console, step: StepView, now: datetime) -> None:
    if step.kind == "A/B test":
        console.print(f"users:    {step.candidate_users} in candidate, {step.control_users} in control")
        console.print(f"end:      {step.deadline:%Y-%m-%d %H:%M} UTC, or `tuneloop rollout step`")
        return
    control = "" if step.control_users is None else f", {step.control_users} of {step.min_users} in control"
    console.print(f"users:    {step.candidate_users} of {step.min_users} in candidate{control}")
    left = max(0.0, (step.ready_at - now).total_seconds() / 60)
    console.print(f"time:     at least until {step.ready_at:%Y-%m-%d %H:%M} UTC ({_duration(left)} left)")
    console.print(f"time-out: rolled back at {step.deadline:%Y-%m-%d %H:%M} UTC if it still lacks something")


def _foreseen(one: Forecast) -> str:
    if one.days == 0:
        return f"{one.share:.0%}: nobody knows; the event log holds no earlier day"
    when = "not before its time-out" if one.minutes is None else f"in about {_duration(one.minutes)}"
    return f"{one.share:.0%}: can go on {when} (in time on {one.in_time} of the last {one.days} days)"


def _guardrails(checks: tuple[Check, ...]) -> Table:
    table = Table(box=box.SIMPLE)
    table.add_column("guardrail")
    for column in ("estimate", "at least", "at most", "allowed", "users"):
        table.add_column(column, justify="right")
    table.add_column("says")
    for check in checks:
        numbers = [_number(value) for value in (check.estimate, check.low, check.high, check.margin)]
        table.add_row(check.metric, *numbers, str(check.users), _SAYS[check.passed])
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def _duration(minutes: float) -> str:
    whole = round(minutes)
    return f"{whole} min" if whole < 60 else f"{whole // 60} h {whole % 60} min"
