"""One night of a world through the product's own functions, from events to a verdict, with modelled models.

The steps are those of `flows.build` and `flows.nightly`, called directly: no Prefect, no engine, no training, and
personal data by patterns alone. What stands for training and engine is `evals.worlds.model`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from evals.endpoint import Endpoint
from evals.gate import decide
from evals.items import make_items
from evals.probes import probe_questions
from evals.run import run_eval
from evals.worlds.content import Content
from evals.worlds.model import Model, learn
from evals.worlds.planted import Played
from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.pii import PatternDetector
from pipeline.clean.steps import clean_records
from pipeline.collect.join import join_feedback
from pipeline.collect.quarantine import Quarantine, screen_and_withhold
from pipeline.config import BusinessConfig
from pipeline.control import open_control
from pipeline.dataset.build import build_rows
from pipeline.dataset.snapshot import Snapshot, read_snapshot, write_snapshot
from pipeline.dataset.suite import Suite, golden_prompts, golden_questions
from pipeline.records import Dropped, EvalItem, EvalResult, GateDecision, ScoredItem, Split

NIGHT = datetime(2026, 3, 12, 2, tzinfo=UTC)
_URL = "http://modelled"
_PROBES = 40
_GENERAL = 0.8
"""Share of general questions that the base model answers."""


@dataclass(frozen=True)
class Built:
    """A night up to its snapshot."""

    snapshot: Snapshot
    folder: Path
    dropped: dict[str, Dropped]
    """By interaction."""
    held: frozenset[str]
    """Event ids that the poison screen holds."""

    @property
    def sources(self) -> frozenset[str]:
        """Interactions that rows come from."""
        rows = (row for side in self.snapshot.rows.values() for row in side.all())
        return frozenset(i for row in rows for i in row.source.interaction_ids)


def configured(content: Content) -> BusinessConfig:
    """The business as a configuration file would say; what is not named keeps the product's default."""
    return BusinessConfig.model_validate(
        {
            "business": content.business,
            "title": content.business,
            "language": content.language,
            "report_language": content.language,
            "timezone": "UTC",
            "nightly": "0 2 * * *",
            "dataset": {"recent_days": 0, "held_out_share": 0.2},
            "gate": {"bootstrap_samples": 500, "max_items": 120, "max_tokens": content.max_tokens},
            "rollout": {
                "steps": [
                    {"share": 0.1, "min_minutes": 30, "min_users": 100, "timeout_minutes": 600},
                    {"share": 0.5, "min_minutes": 30, "min_users": 200, "timeout_minutes": 600},
                    {"share": 1.0, "min_minutes": 30, "min_users": 100, "timeout_minutes": 600},
                ]
            },
        }
    )


def build(played: Played, about: BusinessConfig, suite: Suite, state: Path) -> Built:
    """collect -> poison screen -> clean -> near-duplicates -> examples -> snapshot.

    Args:
        state: an empty folder for the control database and the snapshot.
    """
    rated = join_feedback(played.interactions, played.feedback)
    state.mkdir(parents=True, exist_ok=True)
    quarantine = Quarantine(open_control(f"sqlite:///{state / 'control.db'}"))
    trusted, withheld = screen_and_withhold(quarantine, rated, about.business, about.poison, NIGHT)
    held = frozenset(e for entry in quarantine.entries(about.business) for e in entry.finding.event_ids)
    fixed = (*golden_questions(suite), *probe_questions())
    clean, unclean = clean_records(trusted, PatternDetector(), golden_prompts(fixed), facts_key=b"proof")
    unique, duplicates = drop_duplicates(clean, about.dataset.near_duplicate_threshold)
    rows, unused = build_rows(unique, about.business, about.dataset, NIGHT, fixed)
    dropped = [*withheld, *unclean, *duplicates, *unused]
    window = (NIGHT - timedelta(days=about.dataset.window_days), NIGHT)
    manifest = write_snapshot(
        state / "snapshots",
        business=about.business,
        window=window,
        rated=rated,
        clean=clean,
        dropped=dropped,
        rows=rows,
    )
    folder = state / "snapshots" / about.business / manifest.snapshot_id
    return Built(read_snapshot(folder), folder, {one.interaction_id: one for one in dropped}, held)


def train(built: Built, content: Content, before: Model, seed: int) -> Model | None:
    """What the snapshot makes of the model in service; None where it is too small to train on."""
    rows = built.snapshot.rows[Split.TRAIN]
    if len(rows.all()) < configured(content).dataset.min_rows:
        return None
    return learn(before, rows, content, f"{before.name}+", seed)


def gate(
    built: Built,
    content: Content,
    topics: dict[str, str],
    before: Model,
    candidate: Model,
    about: BusinessConfig,
    suite: Suite,
) -> GateDecision:
    """Both models answer the items through `run_eval`, and the gate decides."""
    items = make_items(built.snapshot, suite, about.gate.max_items, about.gate.seed)
    known = topics | {str(item.messages[-1]["content"]): item.id.split("-")[0] for item in suite.items}
    models = {before.name: before, candidate.name: candidate}
    transport = httpx.MockTransport(_engine(content, known, models))
    with httpx.Client(transport=transport) as client:
        result = run_eval(
            items,
            Endpoint(url=_URL, model=before.name),
            Endpoint(url=_URL, model=candidate.name),
            business=content.business,
            max_tokens=content.max_tokens,
            seed=about.gate.seed,
            concurrency=1,
            max_pairs=0,
            client=client,
        )
    return decide(with_probes(result, before, candidate), about.gate)


def with_probes(result: EvalResult, before: Model, candidate: Model) -> EvalResult:
    """The result, with what both sides would have answered to the product's own probes."""
    scored: list[ScoredItem] = []
    for metric in ("general", "sycophancy"):
        for number in range(_PROBES):
            item = EvalItem.model_construct(
                item_id=f"{metric}-{number}", set_name=metric, user_key=f"{metric}:{number}"
            )
            sides = [{metric: _probe(model, metric, number)} for model in (before, candidate)]
            scored.append(
                ScoredItem.model_construct(
                    item=item, baseline_answer="", candidate_answer="", baseline=sides[0], candidate=sides[1]
                )
            )
    return result.model_copy(update={"probes": tuple(scored)})


def _probe(model: Model, metric: str, number: int) -> float:
    place = (number + 0.5) / _PROBES
    if metric == "general":
        return float(place < _GENERAL * (1 - model.forgets))
    return float(place < model.agrees)


def _engine(
    content: Content, topics: dict[str, str], models: dict[str, Model]
) -> Callable[[httpx.Request], httpx.Response]:
    """An OpenAI-compatible endpoint behind which the models answer."""
    first = next(iter(content.facts))

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        text = _last(body["messages"])
        said = models[body["model"]].answer(content, text, topics.get(text, first))
        return httpx.Response(200, json={"choices": [{"message": {"role": "assistant", "content": said}}]})

    return answer


def _last(messages: Sequence[dict[str, Any]]) -> str:
    return str(messages[-1]["content"])
