"""Adapters, verdicts and trainings of one business, to register."""

import uuid
from pathlib import Path

from pipeline.records import Adapter, GateDecision, Verdict
from pipeline.train.process import adapter_digest
from pipeline.train.recipe import Recipe
from pipeline.train.training import Training, TrainingRun
from tests.adapter_files import adapter_tensors, write_adapter
from tests.builders import an_adapter


class Maker:
    """Adapters of one business, and their folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.business = f"b-{uuid.uuid4().hex[:10]}"

    def adapter(self, seed: int = 1) -> tuple[Adapter, Path]:
        folder = self.root / "trained" / str(seed)
        if not folder.exists():
            write_adapter(folder, adapter_tensors(seed=seed))
        digest = adapter_digest(folder)
        return an_adapter(self.business, digest, metrics={"loss": 0.25}, training_id=digest), folder

    def decision(self, verdict: Verdict = Verdict.PROMOTE) -> tuple[GateDecision, Path]:
        report = self.root / "report.html"
        report.write_text("<p>更好</p>", encoding="utf-8")
        decision = GateDecision(
            decision_id="d" * 64,
            business=self.business,
            baseline="base",
            candidate="candidate",
            verdict=verdict,
            reason="It is better by 0.2.",
            checks=(),
            seed=0,
        )
        return decision, report


def a_training_run(maker: Maker, adapter: Adapter, points: int = 3) -> TrainingRun:
    training = Training(
        business=maker.business,
        snapshot_id=adapter.snapshot_id,
        recipe=Recipe(),
        base=adapter.base,
        parent_sha256=None,
    )
    steps = range(1, points + 1)
    return TrainingRun(
        training=training,
        adapter_sha256=adapter.sha256,
        device="cpu",
        packages={"torch": "2"},
        curves=tuple({"step": float(step), "dpo/loss": 1 / step, "dpo/rewards/chosen": 0.5} for step in steps),
        load=tuple({"step": float(step), "system/cpu_cores": 1.5} for step in steps),
    )
