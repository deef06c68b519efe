"""The whole loop with real parts and simulated users: `make demo`.

Read `tell_the_story` top to bottom. It ends with exit code 0 only if every promised thing was found to have happened.
A run that was killed goes on where it stopped; a run after a finished one is a second night.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from evals.worlds.content import Content, load_content
from examples.demo import checks
from examples.demo.display import console, phase
from examples.demo.stages import Canary, Demo, DemoError, follow_canary, load, run_night, save, talk
from examples.demo.users import Tally
from flows import stack
from pipeline.config import Config, Settings, load_config, load_settings
from pipeline.errors import PipelineError
from pipeline.gateway import auth
from pipeline.records import Night, Verdict
from pipeline.rollout.store import RolloutStore
from pipeline.services import Services, connect

CONFIGS = Path(__file__).parent / "configs"


def tell_the_story() -> bool:
    """One night of every business. Returns whether all that was promised happened."""
    config = load_config(CONFIGS)
    settings = _start(config)
    services = connect(config, settings)
    demo = Demo(config, settings, _api_key(config, services), _night_number(config))
    contents = [load_content(business) for business in config.businesses]
    console.rule(f"night {demo.number}")
    demo.folder.mkdir(parents=True, exist_ok=True)
    before = _before(demo, services)
    tallies = _traffic(demo, contents)
    nights = {content.business: _night(demo, content) for content in contents}
    canaries = _canaries(demo, services, contents, nights)
    right = _summary(demo, services, tallies, nights, canaries, before)
    if right:
        (demo.folder / "finished").touch()
    return right


def _start(config: Config) -> Settings:
    stack.make_secrets(config.state_dir)
    settings = load_settings(config.state_dir)
    with phase("start MLflow, Prefect, vLLM, gateway, controller") as tell:
        stack.up(config, settings, tell)
    return settings


def _api_key(config: Config, services: Services) -> str:
    path = config.state_dir / "demo" / "api-key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        known = {key.name for key in auth.list_keys(services.control)}
        if "demo" in known:  # a run was killed between making the key and keeping it
            auth.revoke_key(services.control, "demo", datetime.now(UTC))
        name = f"demo-{datetime.now(UTC):%Y%m%d%H%M%S}"
        draft = path.with_suffix(".tmp")
        draft.touch(mode=0o600)
        draft.write_text(auth.create_key(services.control, name, tuple(config.businesses), datetime.now(UTC)))
        draft.rename(path)
        time.sleep(2.5)  # gateways look for new keys every two seconds
    return path.read_text()


def _night_number(config: Config) -> int:
    """The first night that is not finished."""
    return 1 + sum(1 for _ in (config.state_dir / "demo").glob("night-*/finished"))


def _before(demo: Demo, services: Services) -> dict[str, int | None]:
    """What was in service when this night began."""
    kept = load(demo, "before")
    if kept is None:
        kept = {business: services.registry.aliases(business).get("champion") for business in demo.config.businesses}
        save(demo, "before", kept)
    assert isinstance(kept, dict)
    return kept


def _traffic(demo: Demo, contents: list[Content]) -> dict[str, Tally]:
    async def all_at_once() -> list[Tally]:
        done: dict[str, str] = {}

        def tell_for(business: str) -> Callable[[int, int], None]:
            def tell(number: int, of: int) -> None:
                done[business] = f"{business} {number}/{of}"
                show(" · ".join(done.values()))

            return tell

        return await asyncio.gather(*(talk(demo, content, tell_for(content.business)) for content in contents))

    with phase("users talk through the gateway and leave feedback") as show:
        tallies = asyncio.run(all_at_once())
    return {tally.business: tally for tally in tallies}


def _night(demo: Demo, content: Content) -> Night:
    with phase(f"night of {content.business}: collect, clean, train, gate, register") as tell:
        night = run_night(demo, content.business, tell)
    console.print(f"  {night.verdict or night.end}: {night.reason}", soft_wrap=True)
    return night


def _canaries(demo: Demo, services: Services, contents: list[Content], nights: dict[str, Night]) -> dict[str, Canary]:
    winners = [content for content in contents if nights[content.business].verdict is Verdict.PROMOTE]
    if not winners:
        return {}
    for content in winners:
        steps = demo.config.business(content.business).rollout.steps
        console.print(
            f"  {content.business}: steps shortened for the demo: "
            + ", ".join(f"{s.share:.0%} ≥ {s.min_minutes * 60:.0f} s and {s.min_users} users an arm" for s in steps),
            soft_wrap=True,
        )

    async def all_at_once(show: Callable[[str], None]) -> list[Canary]:
        lines: dict[str, str] = {}

        def tell(seen: Canary) -> None:
            share = f"{seen.shares[-1]:.0%}" if seen.shares else "loading"
            lines[seen.business] = f"{seen.business} {share}, {sum(seen.arms.values())} requests"
            show(" · ".join(lines.values()))

        names = [checks.serving_name(services.registry, nights[content.business]) for content in winners]
        versions = [nights[content.business].version or 0 for content in winners]
        return await asyncio.gather(
            *(follow_canary(demo, *each, tell) for each in zip(winners, versions, names, strict=True))
        )

    with phase("canary 5 → 10 → 30 → 50 → 100 % with live traffic") as show:
        canaries = asyncio.run(all_at_once(show))
    return {canary.business: canary for canary in canaries}


def _summary(
    demo: Demo,
    services: Services,
    tallies: dict[str, Tally],
    nights: dict[str, Night],
    canaries: dict[str, Canary],
    before: dict[str, int | None],
) -> bool:
    store = RolloutStore(services.control)
    right = True
    for business, night in nights.items():
        facts = [
            *checks.data_facts(demo, tallies[business], night),
            *checks.version_facts(demo, services.registry, night),
            *checks.service_facts(demo, services.registry, store, night, before[business]),
        ]
        if demo.number == 1:
            facts.append(
                checks.Fact(
                    "first night: better than the base model",
                    "promote",
                    str(night.verdict),
                    night.verdict is Verdict.PROMOTE,
                )
            )
        table = Table(title=f"{business}: planted and found", title_justify="left")
        for column in ("what", "planted", "found", ""):
            table.add_column(column, overflow="fold")
        for fact in facts:
            table.add_row(fact.what, fact.planted, fact.found, "[green]✓[/]" if fact.right else "[red]✗[/]")
        console.print(table)
        _say_how_well(tallies[business], canaries.get(business))
        right = right and all(fact.right for fact in facts)
    _say_where_to_look(demo, nights)
    return right


def _say_how_well(tally: Tally, canary: Canary | None) -> None:
    line = f"  obeyed the planted preference: {tally.obey_rate:.0%} of {tally.judged} answers before"
    if canary:
        for arm, requests in sorted(canary.arms.items()):
            line += f", {canary.obeyed[arm] / requests:.0%} of {requests} on arm {arm}"
    console.print(line, soft_wrap=True)


def _say_where_to_look(demo: Demo, nights: dict[str, Night]) -> None:
    system = demo.config.system
    console.print("\nlook here:")
    console.print(f"  MLflow    {system.mlflow.url}/#/models")
    console.print(f"  Prefect   {system.prefect.url}/runs")
    console.print(
        f"  gateway   {demo.gateway_url}/v1 (key in {demo.config.state_dir / 'demo' / 'api-key'})", soft_wrap=True
    )
    for business, night in nights.items():
        for page in (night.report, f"rollout-v{night.version}.html"):
            path = demo.config.state_dir / "reports" / business / (page or "")
            if page and path.is_file():
                console.print(f"  report    {path.as_uri()}", soft_wrap=True)
    console.print("  again: make demo (the next night) · stop: make down")


def main() -> None:
    """Run, and say in one line what went wrong if something did."""
    try:
        right = tell_the_story()
    except (PipelineError, DemoError) as error:
        console.print(f"[red]demo: {error}[/]", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("stopped; `make demo` goes on from here, `make down` stops the servers")
        sys.exit(130)
    if not right:
        console.print("[red]not everything happened as promised: see ✗ above[/]")
        sys.exit(1)


if __name__ == "__main__":
    main()
