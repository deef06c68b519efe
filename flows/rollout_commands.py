"""`tuneloop rollout`: what a person does with a canary at a terminal."""

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.options import CONFIGS, REASON

if TYPE_CHECKING:
    from flows.controller.client import ControllerClient

_ENGINES_S = 120
"""How long `start` watches engines load; a load with its proof takes seconds."""

_TIMES = ("%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S%z")
_BUSINESS = click.argument("business", metavar="BUSINESS")


@click.group()
def rollout() -> None:
    """Bring a version to its users step by step, hold it, or take it back.

    \b
    A version serves 5 % of the users first, then 10, 30, 50 and 100 % (section `rollout` of the
    business's file). The controller widens it by itself while no guardrail is worse than
    allowed, and takes it back when one is. These commands are for what a person decides.

    \b
    Begin:      tuneloop rollout start support 3 --reason "asked for by the help desk"
    Look:       tuneloop rollout status support
    What next?  tuneloop rollout explain support
    Go on now:  tuneloop rollout step support --reason "quiet week, ten users are enough"
    Hold:       tuneloop rollout pause support --reason "holiday"; then resume
    Take back:  tuneloop rollout rollback support --reason "complaints"

    Who and why go to the audit trail and to the version's tags in MLflow. Setting alias
    `promote` or `rollback` on a version in MLflow's page does the same as start and rollback.
    """


@rollout.command()
@_BUSINESS
@click.argument("version", type=click.IntRange(min=1))
@CONFIGS
@REASON
@click.option("--ab", type=click.FloatRange(0, 0.5, min_open=True), help="An A/B test: share of users on VERSION.")
@click.option(
    "--until",
    type=click.DateTime(_TIMES),
    metavar="TIME",
    help="When the A/B test ends, such as 2026-05-01T08:00+02:00.",
)
def start(business: str, version: int, configs: Path, reason: str, ab: float | None, until: datetime | None) -> None:
    """Begin the canary of VERSION, a number that MLflow gave it.

    It must have passed the gate (or carry a tag `override` with a name and a reason), fit the base
    model, and be proven on every engine that answers. Ends with 0: the canary began; 2: it was
    refused, and why; 3: engines are not ready yet, and it begins by itself when they are.

    With --ab and --until it is an A/B test: a fixed split by user, as many others being compared
    (0.5: everybody), without steps. It ends at that time, or by `tuneloop rollout step`; then the
    version in service serves everybody again, and the page says how users did with either.
    """
    if (ab is None) != (until is None):
        raise click.UsageError("--ab and --until go together: how many users, and how long")
    controller = _controller(configs, business)
    test = {} if ab is None or until is None else {"ab": {"share": ab, "until": until.isoformat()}}
    controller.post("/start", _command(business, reason) | {"version": version} | test)
    told = ""
    for _ in range(_ENGINES_S):
        now = controller.get("/status")["businesses"][business]
        if now["canary"] and now["canary"]["version"] == version:
            _echo_state(business, now)
            return
        if now["asked"] is None:
            click.echo(f"tuneloop: {_line(now['history'][-1])}", err=True)
            sys.exit(2)
        waiting = "; ".join(controller.get(f"/explain/{business}")["waits_for"])
        if waiting and waiting != told:
            click.echo(f"waiting for engines: {waiting}", err=True)
            told = waiting
        time.sleep(1)
    click.echo(
        f"version {version} of '{business}' still waits for its engines and begins by itself; "
        f'`tuneloop rollout rollback {business} --reason "…"` withdraws it',
        err=True,
    )
    sys.exit(3)


def _add_command(action: str, about: str) -> None:
    """A command that has the controller act on what is under way, and shows what became of it."""

    @rollout.command(action, help=about)
    @_BUSINESS
    @CONFIGS
    @REASON
    def tell(business: str, configs: Path, reason: str) -> None:
        controller = _controller(configs, business)
        controller.post(f"/{action}", _command(business, reason))
        _echo_state(business, controller.get("/status")["businesses"][business])


_add_command("pause", "Keep a canary at its share. Guardrails can still take it back; its time-out stands still.")
_add_command("resume", "Let a paused canary go on.")
_add_command(
    "step",
    """Confirm the next step of a canary now, the last one being its promotion.

    You may pass over the minimum time and the minimum users of the step; your reason and what was
    passed over go to the audit trail. Nobody passes over a guardrail that is worse than allowed, a
    comparison that is broken, or an adapter that no engine is proven to serve: that ends with 2.
    """,
)
_add_command(
    "rollback",
    """Take a canary out of service now, or else undo the last promotion.

    Every user gets the stable adapter with the next turn; answers under way are not cut. A version that
    was asked for and waits for its engines is withdrawn. Doing it twice changes nothing.
    """,
)


@rollout.command()
@_BUSINESS
@CONFIGS
def status(business: str, configs: Path) -> None:
    """Show where a business's rollout stands, and the last lines of its audit trail."""
    now = _controller(configs, business).get("/status")["businesses"][business]
    _echo_state(business, now)
    for entry in now["history"][-10:]:
        click.echo(f"  {entry['at'][:16]}Z  {_line(entry)}")


@rollout.command()
@_BUSINESS
@CONFIGS
@click.option("--json", "as_json", is_flag=True, help="Print the controller's answer as JSON.")
def explain(business: str, configs: Path, as_json: bool) -> None:
    """Say what the controller would do next, and why.

    It is told by the function that does it: the step under way, the time and the users that it still
    needs, every guardrail with its bounds, what holds it up, and when it could go on by what came at
    this time of day on the last days.
    """
    import json

    from flows.explained import print_explanation
    from pipeline.rollout.explanation import Explanation

    told = _controller(configs, business).get(f"/explain/{business}")
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        print_explanation(Explanation.model_validate(told))


@rollout.command()
@_BUSINESS
@click.argument("version", type=click.IntRange(min=1))
@CONFIGS
@click.option("--judge", is_flag=True, help="Have the business's judge compare both answers.")
def shadow(business: str, version: int, configs: Path, judge: bool) -> None:
    """Show how VERSION answered copies of users' requests while it was in shadow.

    How many there were, how many failed or were refused, how long they are and how like what users
    got. With --judge, a model says of each pair which answer is better, without knowing whose it is;
    personal data leaves both first.
    """
    from datetime import UTC

    from flows.shadow import show_shadow
    from pipeline.config import load_config

    config = load_config(configs)
    show_shadow(config, config.business(business), version, ask_judge=judge, now=datetime.now(UTC))


def _controller(configs: Path, business: str) -> "ControllerClient":
    from flows.controller.client import ControllerClient
    from pipeline.config import load_config, load_settings

    config = load_config(configs)
    config.business(business)
    return ControllerClient(config, load_settings(config.state_dir))


def _command(business: str, reason: str) -> dict[str, str | int]:
    import getpass

    return {"business": business, "actor": getpass.getuser(), "reason": reason}


def _echo_state(business: str, now: dict[str, Any]) -> None:
    canary, asked = now["canary"], now["asked"]
    stable = "the base model" if now["stable"] is None else f"version {now['stable']}"
    if canary:
        paused = f", paused by {canary['paused_by']}" if canary["paused_by"] else ""
        if canary["in_shadow"]:
            click.echo(f"{business}: version {canary['version']} is in shadow{paused}, {stable} serves everybody")
            return
        what = (
            f"A/B test until {canary['ab']['until']}" if canary["ab"] else f"step {canary['step']} of {canary['steps']}"
        )
        click.echo(
            f"{business}: version {canary['version']} serves {canary['share']:.0%} of the users ({what}{paused}), "
            f"{stable} the others"
        )
    else:
        click.echo(f"{business}: {stable} serves everybody, no canary is under way")
    if asked:
        click.echo(f"  version {asked['version']}, asked for by {asked['by']}, waits for its engines")


def _line(entry: dict[str, Any]) -> str:
    """Of the audit trail."""
    detail = entry["detail"]
    about = f"version {detail['version']}: " if detail.get("version") else ""
    return f"{about}{entry['action']} by {entry['actor']}: {detail.get('reason')}"
