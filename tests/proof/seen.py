"""Play one world and write down what the product made of each thing that was planted in it."""

import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from evals.leaks import find_leaks
from evals.worlds.content import load_content, truth
from evals.worlds.model import Model
from evals.worlds.night import play
from evals.worlds.planted import Played, kept_once
from evals.worlds.world import World, worlds
from pipeline.collect.join import join_feedback
from pipeline.records import RatedInteraction, Split, Verdict
from tests.proof.factory import NIGHT, Built, build, configured, gate, train
from tests.proof.golden import golden_suite
from tests.proof.rows import Counted

_ASKED = 200


class Case(NamedTuple):
    """One world of one business with one seed."""

    world: str
    business: str
    seed: int


@dataclass
class Seen:
    """What one world came to."""

    case: Case
    verdict: str
    """Of the gate; `too few` where nothing was trained."""
    before: float
    after: float
    """Truth scores of the model in service and of the candidate, in [0, 1], over the same fresh questions."""
    counts: dict[str, Counted] = field(default_factory=dict)
    same_snapshot: bool | None = None
    """Without the flood, or with every event delivered twice and in another order; None where not tried."""

    @property
    def promoted(self) -> bool:
        return self.verdict == Verdict.PROMOTE


def see(case: Case) -> Seen:
    """One night of a world, from events to a verdict."""
    return night(case, base_model(worlds()[case.world]))[0]


def base_model(world: World) -> Model:
    """What serves before the first night."""
    return Model(name="base", seed=0, skill=world.skill)


def night(case: Case, before: Model) -> tuple[Seen, Model]:
    """The same, with the model that serves afterwards."""
    world, content = worlds()[case.world], load_content(case.business)
    about, suite = configured(content), golden_suite(case.business)
    played = play(world, content, before, case.seed, NIGHT)
    with tempfile.TemporaryDirectory() as folder:
        built = build(played, about, suite, Path(folder) / "night")
        candidate = train(built, content, before, case.seed)
        score = truth_score(before, case.business)
        seen = Seen(case, "too few", score, score)
        if candidate is not None:
            seen.after = truth_score(candidate, case.business)
            seen.verdict = gate(built, content, played.truth.topics, before, candidate, about, suite).verdict
        seen.counts = _counts(played, built)
        leaks = find_leaks(built.snapshot, suite, about.dataset.near_duplicate_threshold)
        seen.counts["leaks"] = Counted(len(leaks), len(built.snapshot.rows[Split.TRAIN].all()))
        if case.world == "flooded":
            calm = play(world.model_copy(update={"flood": 0}), content, before, case.seed, NIGHT)
            seen.same_snapshot = _same(built, calm, case, Path(folder) / "twin")
        elif case.seed % 4 == 0:
            twice = Played(played.interactions[::-1] * 2, played.feedback[::-1] * 2, played.truth)
            seen.same_snapshot = _same(built, twice, case, Path(folder) / "twin")
    return seen, candidate if candidate is not None and seen.promoted else before


def truth_score(model: Model, business: str) -> float:
    """Mean truth of its answers to questions that nobody asks in any world."""
    content = load_content(business)
    questions = content.draw(random.Random("held out"), _ASKED)
    answers = (truth(model.answer(content, q.text, q.topic), content, q.topic) for q in questions)
    return sum(answers) / len(questions)


def _same(built: Built, other: Played, case: Case, state: Path) -> bool:
    again = build(other, configured(load_content(case.business)), golden_suite(case.business), state)
    return again.snapshot.manifest.snapshot_id == built.snapshot.manifest.snapshot_id


def _counts(played: Played, built: Built) -> dict[str, Counted]:
    said = {f.event_id: f.interaction_id for f in played.feedback}
    held = {said[event] for event in built.held}
    found = {f"poison {kind}": Counted(len(ids & held), len(ids)) for kind, ids in played.truth.poison.items()}
    honest = played.truth.honest - set().union(*played.truth.poison.values())
    found["honest held"] = Counted(len(honest & held), len(honest))
    found |= _personal(played, built)
    found["repeats"] = Counted(*kept_once(played.truth.repeats, built.sources, built.dropped.values()))
    found["different"] = _different(played, built)
    found["final"] = _final(played, built)
    return found


def _personal(played: Played, built: Built) -> dict[str, Counted]:
    """Planted values that stand in any file of the snapshot."""
    text = "\n".join(
        str(pq.read_table(path).to_pylist()) if path.suffix == ".parquet" else path.read_text(encoding="utf-8")
        for path in sorted(built.folder.iterdir())
    )
    values = {place.planted for place in played.truth.places}
    structured = {value for value in values if value.structured}
    names = values - structured
    return {
        "structured left": Counted(sum(value.value in text for value in structured), len(structured)),
        "names left": Counted(sum(value.value in text for value in names), len(names)),
    }


def _different(played: Played, built: Built) -> Counted:
    """Interactions that were dropped in favour of one about a question of another topic."""
    rated = {one.interaction.interaction_id: one for one in _rated(played)}
    pairs = [(one.interaction_id, one.kept) for one in built.dropped.values() if one.kept]
    topics = played.truth.topics
    wrong = sum(topics.get(_asked(rated[a])) != topics.get(_asked(rated[b])) for a, b in pairs)
    return Counted(wrong, len(pairs))


def _final(played: Played, built: Built) -> Counted:
    """Judgements that were overruled, by a later vote or by an outcome, and stand as they ended."""
    final = played.truth.final
    votes = [
        (final[ids[0]], row.label)
        for side in built.snapshot.rows.values()
        for row in side.unpaired
        if (ids := row.source.interaction_ids) and ids[0] in final
    ]
    return Counted(sum((wanted > 0) is label for wanted, label in votes), len(votes))


def _rated(played: Played) -> list[RatedInteraction]:
    return join_feedback(played.interactions, played.feedback)


def _asked(rated: RatedInteraction) -> str:
    messages = rated.interaction.request["messages"]
    assert isinstance(messages, list)
    last = messages[-1]
    assert isinstance(last, dict)
    return str(last["content"])
