"""What must really have happened: looked up in snapshots, registry, control database and the running engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet

from evals.worlds.personal import Planted
from evals.worlds.planted import kept_once
from examples.demo.stages import Demo, unloaded
from examples.demo.users import Tally
from pipeline.dataset.snapshot import read_dropped, read_snapshot
from pipeline.records import ModelVersion, Night, Verdict
from pipeline.registry.base import ModelRegistry
from pipeline.rollout.state import Steady
from pipeline.rollout.store import RolloutStore


class Fact(NamedTuple):
    """One thing that was planted or promised, and what was found."""

    what: str
    planted: str
    found: str
    right: bool


def data_facts(demo: Demo, tally: Tally, night: Night) -> list[Fact]:
    """From traffic to snapshot: signals, duplicates, personal data."""
    folder = demo.config.state_dir / "snapshots" / night.business / night.snapshot_id
    snapshot = read_snapshot(folder)
    manifest = snapshot.manifest
    sources = {i for side in snapshot.rows.values() for row in side.all() for i in row.source.interaction_ids}
    once, repeats = kept_once(tally.repeats, sources, read_dropped(folder))
    events = sum(tally.feedback.values()) - tally.resent - tally.flipped - tally.withdrawn
    signals = sum(manifest.signal_counts.values())
    structured = [value for value in tally.planted if value.structured]
    names = [value for value in tally.planted if not value.structured]
    leaks, left = _found_anywhere(demo, structured), _found_anywhere(demo, names)
    replaced = sum(manifest.pii_counts.values())
    accounted = manifest.sources + sum(manifest.dropped.values())
    return [
        Fact(
            "requests → interactions in the window",
            f"≥ {tally.requests}",
            f"{manifest.interactions}",
            manifest.interactions >= tally.requests,
        ),
        Fact(
            "feedback → signals (redelivered and withdrawn count once or not)",
            f"≥ {events - tally.withdrawn}",
            f"{signals}",
            signals >= events - tally.withdrawn,
        ),
        Fact(
            "interactions = sources + dropped",
            f"{manifest.interactions}",
            f"{accounted}",
            accounted == manifest.interactions,
        ),
        Fact("question, answer and judgement repeated", f"{repeats}", f"{once} kept once", once == repeats),
        Fact(
            "ids, phones, cards, mail in snapshots, adapters, reports, logs",
            f"{len(structured)}",
            f"{len(leaks)} left, {replaced} values replaced",
            not leaks and (replaced > 0 or not structured),
        ),
        Fact("names", f"{len(names)}", f"{len(left)} left", True),
    ]


def version_facts(demo: Demo, registry: ModelRegistry, night: Night) -> list[Fact]:
    """From training to registry."""
    if night.version is None:
        return [Fact("a version was trained and registered", "yes", night.reason, False)]
    version = registry.get(night.business, night.version)
    folder = demo.config.state_dir / "adapters" / version.adapter.sha256
    files = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return [
        Fact(
            "trained by",
            "LoRA",
            f"{version.adapter.method}, rank {version.adapter.rank}, {night.train_rows} rows",
            files == {"adapter_config.json", "adapter_model.safetensors"},
        ),
        Fact(
            "registered in MLflow with its verdict",
            "yes",
            f"version {version.version}, gate={version.gate}",
            version.gate == night.verdict,
        ),
    ]


def service_facts(
    demo: Demo, registry: ModelRegistry, store: RolloutStore, night: Night, before: int | None
) -> list[Fact]:
    """From the verdict to what is served now."""
    state = store.read(night.business).state
    steady = state if isinstance(state, Steady) else None
    aliases = registry.aliases(night.business)
    champion = name_of(aliases.get("champion"))
    if night.verdict is not Verdict.PROMOTE or night.version is None:
        kept = isinstance(state, Steady) and state.stable == before
        return [
            Fact("not promoted: what was in service stays", name_of(before), name_of(aliases.get("champion")), kept)
        ]
    version = registry.get(night.business, night.version)
    last = steady.last if steady else None
    steps = last.steps if last and last.version == night.version else ()
    shares = [step.share for step in demo.config.business(night.business).rollout.steps]
    walked = [step.share for step in steps]
    users = ", ".join(f"{step.share:.0%}: {step.candidate_users}" for step in steps)
    in_use = [version, *([registry.get(night.business, before)] if before is not None else [])]
    names = [each.serving_name for each in in_use]
    missing = unloaded(demo, names)
    return [
        Fact(
            "canary stepped up",
            " → ".join(f"{share:.0%}" for share in shares),
            " → ".join(f"{share:.0%}" for share in walked),
            walked == shares,
        ),
        Fact(
            "users on the candidate, step by step",
            "> 0 each",
            users,
            bool(steps) and all(step.candidate_users > 0 for step in steps),
        ),
        Fact(
            "ended as stable",
            f"version {night.version}",
            name_of(steady.stable) if steady else "no end",
            steady is not None and steady.stable == night.version,
        ),
        Fact(
            "alias champion in MLflow", f"version {night.version}", champion, aliases.get("champion") == night.version
        ),
        Fact(
            "predecessor kept for rollback",
            name_of(before),
            name_of(steady.previous) if steady else "no end",
            steady is not None and steady.previous == before == aliases.get("previous"),
        ),
        Fact(
            "loaded in the running vLLM",
            ", ".join(names),
            "all listed" if not missing else f"missing: {', '.join(missing)}",
            not missing,
        ),
    ]


def name_of(version: int | None) -> str:
    """How a version is called in the summary."""
    return "base model" if version is None else f"version {version}"


def serving_name(registry: ModelRegistry, night: Night) -> str:
    """What the engines call the night's version."""
    assert night.version is not None
    version: ModelVersion = registry.get(night.business, night.version)
    return version.serving_name


def _found_anywhere(demo: Demo, planted: list[Planted]) -> list[Planted]:
    """Which planted values stand in any file of the training side."""
    texts = list(_texts(demo.config.state_dir))
    return [value for value in planted if any(value.value.encode() in text for text in texts)]


def _texts(state_dir: Path) -> Iterator[bytes]:
    for folder in ("snapshots", "reports", "logs", "adapters", "work", "nights", "mlflow/artifacts"):
        for path in sorted((state_dir / folder).rglob("*")):
            if path.suffix == ".parquet":
                yield str(pyarrow.parquet.read_table(path).to_pylist()).encode()
            elif path.is_file():
                yield path.read_bytes()
