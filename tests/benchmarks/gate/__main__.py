"""Run the benchmark: `python -m tests.benchmarks.gate`."""

import argparse
import sys
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import Progress
from scipy.stats import binomtest

from tests.benchmarks.document import DOCUMENT, RESULTS, wrapped, write_json, write_section
from tests.benchmarks.gate import canaries, nights, plan
from tests.benchmarks.gate.curve import Curve, power_svg
from tests.benchmarks.machine import Machine
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import rows_table, shown

_METHOD = """\
Nights and canaries are simulated with a known truth and judged by the code that judges real ones; rates are percent,
with their exact 95 % interval. Users ask one to four questions; two answers in five differ between an adapter and
itself with another seed; users differ in level and in how they take to a candidate; where they are unequal, activity
has a Zipf tail. Guardrails are drawn at 1 % refusals, 0.2 % empty, 0.5 % repetition, 0.1 % leaks; of the probes an
equal candidate loses 5 % and gains as many. The stated smallest effect is the nights' median; of few users the
guardrails refuse more good candidates, and no greater effect helps that. Canaries take the default steps; all metrics
are looked at after every request, while users keep arriving and asking, latencies (log-normal with a Pareto tail) at 24
looks a step. The two other rules are in use elsewhere; here they watch one metric alone, thumbs down, which is kind to
them.\
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gate", description="Errors of gate and canary.")
    parser.add_argument("--nights", type=int, default=1000, help="of each row; a fifth as many canaries")
    parser.add_argument("--quick", action="store_true", help="100 nights; nothing is published")
    given = parser.parse_args()
    quick, count = given.quick, 100 if given.quick else given.nights
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    with Progress(console=console) as progress:
        task = progress.add_task("simulating", total=len(plan.NO_BETTER) + len(plan.NO_WORSE) + len(plan.WORSE) + 4)

        def step() -> None:
            progress.advance(task)

        rows, found = _gate_rows(count, step)
        curves = _curves(count // 10)
        step()
        rows += _canary_rows(count // 5, step)
    console.print(shown(rows))
    machine, now = Machine.this(), datetime.now(UTC)
    results = RESULTS / ("gate-quick.json" if quick else "gate.json")
    write_json(results, rows, machine, now, {"nights": found, "power": curves})
    if not quick:
        (DOCUMENT.parent / "gate-power.svg").write_text(power_svg(curves, 0.8), encoding="utf-8")
        write_section("gate", _section(rows, count, machine, now))
        console.print(f"written: {results}, {DOCUMENT}", soft_wrap=True)
    return 0


def _gate_rows(count: int, step: Callable[[], None]) -> tuple[list[Row], dict[str, nights.Tried]]:
    found: dict[str, nights.Tried] = {}
    for scenario in plan.NO_BETTER:
        found[scenario.name] = nights.try_nights(scenario, count, _seed(scenario.name))
        step()
    rows = [_at_most(f"promoted: {name}", tried.promoted, count) for name, tried in found.items()]
    equal = [scenario for scenario in plan.NO_BETTER if not scenario.effect and scenario.kind != "minority"]
    for scenario in equal:
        covered = found[scenario.name].covered
        rows.append(
            _row(f"95 % interval holds the truth: {scenario.name}", covered, count, "93 to 97", _between(93, 97))
        )
    for equal_one in (plan.EQUAL, plan.FEWER):
        stated = plan.at_stated_effect(equal_one.users, found[equal_one.name].smallest_effect)
        tried = found[stated.name] = nights.try_nights(stated, count, _seed(stated.name))
        step()
        rows.append(_row(f"primary passes: {stated.name}", tried.found, count))
        goal = ("at least 80", _between(80, 100)) if equal_one is plan.EQUAL else ("none", None)
        rows.append(_row(f"promoted, guardrails and all: {stated.name}", tried.promoted, count, *goal))
    yearly = 365 * found[plan.EQUAL.name].promoted / count
    rows.append(Row("equal candidates promoted in a year of nights", yearly, None, None, "none", None, False))
    return rows, found


def _curves(count: int) -> dict[str, Curve]:
    return {
        f"{users} users": [
            (effect, nights.try_nights(scenario, count, _seed(f"{users} {effect}")).found / count)
            for effect in plan.EFFECTS
            for scenario in [nights.Scenario("curve", users=users, effect=effect)]
        ]
        for users in plan.SIZES
    }


def _canary_rows(count: int, step: Callable[[], None]) -> list[Row]:
    rows = []
    for scenario in plan.NO_WORSE:
        tried = canaries.try_canaries(scenario, count, _seed(scenario.name))
        rows.append(_at_most(f"rolled back: {scenario.name}", tried.rolled_back, count))
        if scenario is plan.NO_WORSE[0]:
            rows.append(_row("the same by “30 samples and 5 points worse”", tried.drop_rule, count))
            rows.append(_row("the same by a z-test at 5 % every 100 requests", tried.z_test, count))
        step()
    stated = plan.at_stated_canary_effect()
    tried = canaries.try_canaries(stated, count, _seed(stated.name))
    told = f"rolled back at the first step: {stated.name}, its stated effect"
    rows.append(_row(told, tried.at_first_step, count, "at least 80", _between(80, 100)))
    step()
    for scenario in plan.WORSE:
        tried = canaries.try_canaries(scenario, count // 2, _seed(scenario.name))
        rows.append(_row(f"rolled back before 100 %: {scenario.name}", tried.rolled_back, count // 2))
        step()
    return rows


_Goal = Callable[[float], bool]
"""Whether so many percent meet it."""


def _at_most(metric: str, happened: int, of: int) -> Row:
    return _row(metric, happened, of, f"at most {plan.PROMISED:g}", _between(0, plan.PROMISED))


def _between(least: float, most: float) -> _Goal:
    return lambda percent: least <= percent <= most


def _row(metric: str, happened: int, of: int, goal: str = "none", meets: _Goal | None = None) -> Row:
    """A share in percent, with its interval, held against its goal."""
    percent = 100 * happened / of
    low, high = (100 * end for end in binomtest(happened, of).proportion_ci())
    met = None if meets is None else meets(percent)
    return Row(f"{metric} ({low:.1f}–{high:.1f})", percent, None, None, goal, met, False)


def _seed(name: str) -> int:
    return zlib.crc32(name.encode())


def _section(rows: Sequence[Row], count: int, machine: Machine, now: datetime) -> str:
    about = f"{count:,} nights and {count // 5:,} canaries a row, half as many canaries that are worse. {machine}."
    return "\n\n".join(
        [
            "## Gate and canary",
            wrapped(f"`make bench-gate`, {now:%Y-%m-%d}, {about}"),
            _METHOD,
            rows_table(rows),
            "![How often the gate finds an improvement, by its size and the number of users](gate-power.svg)",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
