"""One night of one business: from the event log to a verdict in the registry.

Read `nightly` top to bottom: it is the list of steps. Killed anywhere and run again for the same night it ends in the
same state, because every step finds what it made before by a content hash. It never touches what is served: the
controller does, from the registry.
"""

import argparse
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from evals.endpoint import Endpoint
from evals.evaluate import evaluate
from evals.gate import decide
from evals.judge import describe
from evals.leaks import refuse_leaks
from evals.report import Lineage, keep_canary, render_gate_report, render_night_report
from flows.build import build_snapshot
from flows.lock import alone, at_gate
from flows.pages import publish
from flows.step import step
from pipeline.config import BusinessConfig, Config, Settings, load_config, load_settings
from pipeline.dataset.snapshot import read_snapshot
from pipeline.dataset.suite import Suite, load_suite
from pipeline.errors import PipelineError
from pipeline.records import (
    Adapter,
    DropReason,
    GateDecision,
    ModelVersion,
    Night,
    NightEnd,
    SnapshotManifest,
    Split,
    canonical_json,
)
from pipeline.registry.base import ModelRegistry
from pipeline.services import Services, connect
from pipeline.serving.proof import choose_probe_texts, fingerprint, training_texts
from pipeline.serving.validate import validate_adapter
from pipeline.train.base_ref import base_model_ref
from pipeline.train.process import train_adapter, training_run_path
from pipeline.train.template import check_template, engine_tokenizer
from pipeline.train.training import read_training_run

logger = logging.getLogger("flows.nightly")
PROBE_TEXTS = 4
TEMPLATE_EXAMPLES = 8
PROBE_CANDIDATES = 16


@flow(name="nightly", flow_run_name="nightly-{business}")
def nightly(business: str, configs: str, night: datetime | None = None) -> Night:
    """Turn the feedback of one business into a gated version.

    Args:
        business: its key.
        configs: the configuration folder.
        night: when the run was due; a repeated run must name the same. Default: the scheduled time of this run.

    Raises:
        DataError: a run of this business is going on already.
        PipelineError: whatever a step says; nothing half-done stays.
    """
    config = load_config(Path(configs))
    settings = load_settings(config.state_dir)
    about = config.business(business)
    due = (night or flow_run.scheduled_start_time or datetime.now(UTC)).astimezone(UTC)
    with alone(config.state_dir, business):
        services = connect(config, settings)
        manifest, snapshot_dir = build_snapshot(config, settings, about, services.control, due, step)
        rows = sum(manifest.rows[Split.TRAIN].values())
        if rows < about.dataset.min_rows:
            return _finish(config, _too_few(config, about, manifest, due, rows))
        step(_check_leaks, "look for leaks")(config, about, snapshot_dir)
        step(_check_template, "compare templates")(config, settings, about, snapshot_dir)
        adapter = _train(config, about, services.registry, snapshot_dir)
        version = step(services.registry.register, "register")(
            adapter,
            config.state_dir / "adapters" / adapter.sha256,
            {key: str(value) for key, value in about.training.model_dump(mode="json").items()},
            f"{adapter.method} on {rows} rows of {manifest.users} users; snapshot {manifest.snapshot_id[:8]}",
        )
        trained = read_training_run(training_run_path(config.state_dir / "adapters", adapter.training_id))
        step(services.registry.record_training, "record training")(business, version.version, trained)
        with at_gate(config.state_dir, business):
            decision, report = _gate(config, settings, about, services, version, snapshot_dir, due)
        outcome = Night(
            business=business,
            night=due,
            end=NightEnd.GATED,
            snapshot_id=manifest.snapshot_id,
            train_rows=rows,
            version=version.version,
            verdict=decision.verdict,
            reason=decision.reason,
            report=report.name,
            quarantined=_quarantined(manifest),
        )
        return _finish(config, outcome)


def _check_leaks(config: Config, about: BusinessConfig, snapshot_dir: Path) -> None:
    """Before an hour is spent: what the gate will ask must not be learned."""
    suite = load_suite(config.directory / about.suite) if about.suite else Suite()
    refuse_leaks(read_snapshot(snapshot_dir), suite, about.dataset.near_duplicate_threshold)


def _check_template(config: Config, settings: Settings, about: BusinessConfig, snapshot_dir: Path) -> None:
    """Before an hour is spent: the engine must read prompts as training does."""
    from pipeline.train.tokenizer import load_rendering  # late: transformers takes seconds

    model = config.system.base_model
    examples = read_snapshot(snapshot_dir).rows[Split.TRAIN].all()
    some = examples[:: max(1, len(examples) // TEMPLATE_EXAMPLES)][:TEMPLATE_EXAMPLES]
    ids = engine_tokenizer(_engine_urls(config)[0], model.id, settings.engine_key.get_secret_value())
    check_template(load_rendering(model.path, about.training.max_length), some, ids)


def _train(config: Config, about: BusinessConfig, registry: ModelRegistry, snapshot_dir: Path) -> Adapter:
    model = config.system.base_model
    adapters_dir = config.state_dir / "adapters"
    parent = start_of_training(about, registry, adapters_dir)

    def tell(done: int, of: int, loss: float) -> None:
        if done == of or done % 10 == 0:
            logger.info("train: step %d of %d, loss %.3f", done, of, loss)

    return step(train_adapter, "train")(
        snapshot_dir,
        about.training,
        base_model_ref(model.path, model.id, model.revision),
        model.path,
        parent,
        adapters_dir,
        config.state_dir / "work",
        tell,
        config.directory / config.system.training.launch if config.system.training.launch else None,
    )


def start_of_training(
    about: BusinessConfig, registry: ModelRegistry, adapters_dir: Path
) -> tuple[Adapter, Path] | None:
    """The adapter in service and its folder, if the business trains on from it; None for the base model.

    Nothing is learned on from an adapter that learned from a user who is erased: what they said would stay in it.
    """
    champion = registry.aliases(about.business).get("champion")
    if about.training.start_from == "base" or champion is None:
        return None
    version = registry.get(about.business, champion)
    if version.learned_erased:
        logger.info("train: from the base model: version %d learned from a user who is erased", champion)
        return None
    return version.adapter, registry.fetch(version, adapters_dir)


def _gate(
    config: Config,
    settings: Settings,
    about: BusinessConfig,
    services: Services,
    version: ModelVersion,
    snapshot_dir: Path,
    due: datetime,
) -> tuple[GateDecision, Path]:
    """Candidate against the adapter in service on the serving engines; the verdict goes to the registry."""
    champion = services.registry.aliases(about.business).get("champion")
    _load_for_gate(config, services, version, snapshot_dir)
    baseline_version = services.registry.get(about.business, champion) if champion is not None else None
    base, adapters = _engine_urls(config)
    key = settings.engine_key.get_secret_value()
    snapshot = read_snapshot(snapshot_dir)
    suite = load_suite(config.directory / about.suite) if about.suite else None
    result = step(evaluate, "gate")(
        snapshot,
        suite,
        Endpoint(url=adapters, model=baseline_version.serving_name, api_key=key)
        if baseline_version
        else Endpoint(url=base, model=config.system.base_model.id, api_key=key),
        Endpoint(url=adapters, model=version.serving_name, api_key=key),
        about,
        concurrency=4,
        judge_key=settings.judge_key.get_secret_value(),
        work_dir=config.state_dir / "work" / "gate",
        on_progress=_tell_evaluation,
    )
    decision = decide(result, about.gate)
    if decision.judging:
        logger.info("gate: %s", describe(decision.judging))
    page = render_gate_report(
        decision,
        result,
        snapshot.manifest,
        business=about,
        version=version.version,
        baseline_version=champion,
        generated_at=due,
        lineage=Lineage(version.adapter, tuple(engine.name for engine in config.system.engines)),
    )
    folder, name = config.state_dir / "reports" / about.business, f"decision-v{version.version}.html"
    if (folder / name).is_file():  # of a run that was killed: its rollout may be under way
        page = keep_canary(page, (folder / name).read_text(encoding="utf-8"))
    report = publish(folder, name, page, about, due)
    step(services.registry.record_decision, "record decision")(decision, version.version, report)
    return decision, report


def _tell_evaluation(what: str, done: int, of: int) -> None:
    if done == of or done % 50 == 0:
        logger.info("gate: %s, %d of %d", what, done, of)


def _load_for_gate(config: Config, services: Services, version: ModelVersion, snapshot_dir: Path) -> None:
    """Put the candidate on the engine that gates, and measure what it must look like wherever it is served later."""
    base_engine = next(e for e in config.system.engines if e.serves != "adapters")
    adapter_engine = next(e for e in config.system.engines if e.serves != "base")
    base_server, adapter_server = services.servers[base_engine.name], services.servers[adapter_engine.name]
    base_id = config.system.base_model.id
    folder = services.registry.fetch(version, config.state_dir / "adapters")
    # Engines take most wrong adapters, and one with NaN poisons its neighbours: the files are looked at first.
    model_dir, adapters_dir = config.system.base_model.path, config.state_dir / "adapters"
    validate_adapter(folder, model_dir, version.adapter.base, adapter_engine.max_rank, adapters_dir)
    step(adapter_server.load, "load candidate")(version.serving_name, folder)
    if version.fingerprint is None:
        texts = choose_probe_texts(
            _probe_candidates(snapshot_dir), base_server, adapter_server, version.serving_name, base_id, PROBE_TEXTS
        )
        measured = step(fingerprint)(base_server, adapter_server, base_id, version.serving_name, texts)
        services.registry.record_fingerprint(version.business, version.version, measured)


def _probe_candidates(snapshot_dir: Path) -> tuple[str, ...]:
    return training_texts(read_snapshot(snapshot_dir).rows[Split.TRAIN])[:PROBE_CANDIDATES]


def _engine_urls(config: Config) -> tuple[str, str]:
    engines = config.system.engines
    return (
        next(engine.url for engine in engines if engine.serves != "adapters"),
        next(engine.url for engine in engines if engine.serves != "base"),
    )


def _too_few(config: Config, about: BusinessConfig, manifest: SnapshotManifest, due: datetime, rows: int) -> Night:
    name, page = render_night_report(manifest, business=about, night=due)
    publish(config.state_dir / "reports" / about.business, name, page, about, due)
    needed = about.dataset.min_rows
    return Night(
        business=manifest.business,
        night=due,
        end=NightEnd.TOO_FEW_ROWS,
        snapshot_id=manifest.snapshot_id,
        train_rows=rows,
        reason=f"{rows} rows to train on, {needed} are needed (dataset.min_rows); nothing was trained",
        report=name,
        quarantined=_quarantined(manifest),
    )


def _quarantined(manifest: SnapshotManifest) -> int:
    return sum(manifest.dropped.get(reason, 0) for reason in (DropReason.QUARANTINED, DropReason.POISON))


def _finish(config: Config, outcome: Night) -> Night:
    folder = config.state_dir / "nights" / outcome.business
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{outcome.night:%Y%m%dT%H%M%S}.json"
    path.write_text(canonical_json(outcome.model_dump(mode="json")), encoding="utf-8")
    return outcome


def main() -> None:
    """Run one night now, in this process, and print its outcome."""
    parser = argparse.ArgumentParser(description="Run the nightly flow of one business now.")
    parser.add_argument("--business", required=True)
    parser.add_argument("--configs", required=True)
    parser.add_argument("--night", type=datetime.fromisoformat)
    arguments = parser.parse_args()
    # Prefect sets up the root logger in its own format when a flow begins: a person at a terminal gets ours.
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(logging.Formatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))
    logger.addHandler(lines)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        outcome = nightly(arguments.business, arguments.configs, arguments.night)
    except PipelineError as error:
        sys.exit(f"tuneloop: {error}")
    print(canonical_json(outcome.model_dump(mode="json")))


if __name__ == "__main__":
    main()
