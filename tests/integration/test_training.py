"""Training with the real trainers, on a tiny model: what comes out, and what a failed or killed one leaves."""

import json
import math
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from flows.cli import main
from pipeline.dataset.snapshot import write_snapshot
from pipeline.dataset.split import SplitRows
from pipeline.errors import TrainingError
from pipeline.records import Adapter, BaseModelRef, Example, Method
from pipeline.train.base_ref import base_model_ref
from pipeline.train.job import Job, Outcome, Progress
from pipeline.train.process import adapter_digest, train_adapter, training_run_path
from pipeline.train.recipe import Recipe
from pipeline.train.training import read_training_run
from tests.builders import NOON, a_preference, a_rated, a_source, an_adapter, an_interaction, an_sft, an_unpaired
from tests.tiny_model import make_tiny_model

GOOD, BAD = "Open the Orders page. Ticket opened.", "How do I return the shoes?"
RECIPE = Recipe(method=Method.SFT, rank=8, alpha=16, learning_rate=1e-2, max_steps=40, batch_size=4, max_length=128)


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> tuple[BaseModelRef, Path]:
    path = make_tiny_model(tmp_path_factory.mktemp("base") / "tiny")
    return base_model_ref(path, "tiny", "r1"), path


def questions(count: int = 12) -> list[str]:
    return [f"How do I return the shoes {number}?" for number in range(count)]


def a_snapshot(root: Path, *examples: Example) -> Path:
    rated = [a_rated(an_interaction("i1"))]
    rows = SplitRows(train=examples, held_out=(), recent=(), dropped=(), split_by="user")
    manifest = write_snapshot(
        root, business="support", window=(NOON, NOON), rated=rated, clean=[], dropped=[], rows=rows
    )
    return root / "support" / manifest.snapshot_id


@pytest.fixture(scope="session")
def snapshot(tmp_path_factory) -> Path:
    sft = [an_sft(a_source(), question, GOOD) for question in questions()]
    pairs = [a_preference(a_source(), question, GOOD, BAD) for question in questions(6)]
    votes = [an_unpaired(a_source(), n % 2 == 0, q, (GOOD, BAD)[n % 2]) for n, q in enumerate(questions())]
    return a_snapshot(tmp_path_factory.mktemp("snapshots"), *sft, *pairs, *votes)


def run_here(snapshot, base, output: Path, parent: Path | None = None, **changes) -> tuple[Outcome, list[Progress]]:
    """The training process's own function, in this process: its imports are paid once for all tests."""
    from pipeline.train.run import run

    recipe = Recipe.model_construct(**(dict(RECIPE) | changes))
    job = Job.model_construct(
        snapshot_dir=snapshot, recipe=recipe, base=base[0], base_path=base[1], parent=parent, output=output
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    steps: list[Progress] = []
    outcome = run(job, steps.append)
    assert outcome is not None
    return outcome, steps


class Trained(NamedTuple):
    """What a training left; others read it, and change nothing."""

    adapter: Path
    outcome: Outcome
    steps: list[Progress]


@pytest.fixture(scope="session")
def imitated(snapshot, base, tmp_path_factory) -> Trained:
    """SFT alone."""
    adapter = tmp_path_factory.mktemp("imitated") / "adapter"
    return Trained(adapter, *run_here(snapshot, base, adapter))


@pytest.fixture(scope="session")
def preferred(snapshot, base, tmp_path_factory) -> Trained:
    """SFT, then DPO, in one go."""
    adapter = tmp_path_factory.mktemp("preferred") / "adapter"
    return Trained(adapter, *run_here(snapshot, base, adapter, method="auto"))


def greedy(base_path: Path, adapter: Path | None, prompt: str) -> str:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base_path)
    model = AutoModelForCausalLM.from_pretrained(base_path)
    model = PeftModel.from_pretrained(model, adapter) if adapter else model
    messages = [{"role": "user", "content": prompt}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        answer = model.generate(**ids, max_new_tokens=60, do_sample=False)
    return tokenizer.decode(answer[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)


def test_sft_teaches_the_answer_and_leaves_two_files(imitated, base):
    adapter, outcome, steps = imitated
    assert (outcome.method, outcome.rank, len(steps)) == (Method.SFT, 8, 40)
    assert outcome.metrics["sft_loss_last"] < 1 < outcome.metrics["sft_loss_first"]
    assert sorted(path.name for path in adapter.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    assert greedy(base[1], None, "How do I return the shoes 99?") != GOOD
    assert greedy(base[1], adapter, "How do I return the shoes 99?") == GOOD


def test_the_configuration_names_the_base_and_offers_nothing_that_engines_refuse(imitated, base):
    config = json.loads((imitated.adapter / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("tiny", "r1")
    assert str(base[1]) not in json.dumps(config)
    assert (config["bias"], config["use_dora"], config["modules_to_save"]) == ("none", False, None)
    assert config["target_modules"] == sorted(config["target_modules"])


def test_auto_imitates_loose_targets_first_and_then_prefers(preferred, base):
    adapter, outcome, steps = preferred
    assert outcome.method is Method.DPO
    assert [step.step for step in steps] == list(range(1, 41))
    assert {step.total for step in steps} == {40}
    # Twelve targets, of which the six pairs teach six: two phases of equal size.
    assert (outcome.metrics["sft_steps"], outcome.metrics["dpo_steps"]) == (20, 20)
    assert [entry["step"] for entry in outcome.curves] == list(range(1, 41))
    assert [entry[name] for name in ("sft/loss", "dpo/loss") for entry in outcome.curves if name in entry] == [
        pytest.approx(step.loss) for step in steps
    ]
    assert [reading["step"] for reading in outcome.load] == list(range(1, 41))
    assert all(reading["system/peak_memory_megabytes"] > 100 for reading in outcome.load)
    assert outcome.metrics["dpo_loss_last"] < outcome.metrics["dpo_loss_first"]
    assert greedy(base[1], adapter, "How do I return the shoes 99?") == GOOD


def test_an_adapter_that_goes_on_starts_at_its_parent_and_refers_to_it(imitated, snapshot, base, tmp_path):
    parent, child = imitated.adapter, tmp_path / "two" / "adapter"
    before = adapter_digest(parent)
    # A wrong start or reference would fail the run: DPO must begin at ln 2.
    outcome, steps = run_here(snapshot, base, child, parent, method=Method.DPO, max_steps=10, dpo_sft_weight=0.0)
    assert steps[0].loss == pytest.approx(math.log(2), abs=1e-3)
    assert outcome.metrics["dpo_loss_last"] < 0.5
    assert adapter_digest(parent) == before != adapter_digest(child)


def test_votes_of_both_signs_are_learned_by_kto(base, tmp_path):
    votes = [an_unpaired(a_source(), n % 3 == 0, q, BAD if n % 3 else GOOD) for n, q in enumerate(questions())]
    # The tiny base stops at no answer's end: imitation comes first, as in any business with targets.
    sft = [an_sft(a_source(), f"Please: {q}", GOOD) for q in questions()]
    snapshot = a_snapshot(tmp_path / "snapshots", *sft, *votes)
    outcome, _ = run_here(snapshot, base, tmp_path / "one" / "adapter", method="auto", max_steps=60)
    assert outcome.method is Method.KTO
    assert outcome.metrics["kto_loss_last"] < outcome.metrics["kto_loss_first"]


def test_weights_decide_what_is_learned(base, tmp_path):
    sft = [an_sft(a_source(weight=1.0), q, GOOD) for q in questions()]
    sft += [an_sft(a_source(weight=0.0), q, BAD) for q in questions()]
    snapshot = a_snapshot(tmp_path / "snapshots", *sft)
    run_here(snapshot, base, tmp_path / "one" / "adapter")
    assert greedy(base[1], tmp_path / "one" / "adapter", "How do I return the shoes 99?") == GOOD


@pytest.mark.parametrize("method", [Method.SFT, Method.DPO, Method.KTO])
def test_training_ends_when_the_loss_on_users_kept_back_no_longer_falls(method, base, tmp_path):
    # What one user is told says nothing about what the next one is: after the first steps only noise is learned.
    noise = random.Random(0)

    def anything() -> str:
        return "".join(noise.choices("abcdefgh", k=12))

    examples: list[Example] = []
    for n, question in enumerate(questions(220)):
        source = a_source(user=f"u{n}")
        match method:
            case Method.SFT:
                examples.append(an_sft(source, question, anything()))
            case Method.DPO:
                examples.append(a_preference(source, question, anything(), anything()))
            case Method.KTO:  # after an imitation: the tiny base stops at no answer's end
                examples.append(an_unpaired(source, n % 2 == 0, question, anything()))
                examples.append(an_sft(source, f"Please: {question}", GOOD))
    snapshot = a_snapshot(tmp_path / "snapshots", *examples)
    changes = {"method": "auto", "max_steps": 160 if method is Method.KTO else 300}
    outcome, steps = run_here(snapshot, base, tmp_path / "one" / "adapter", **changes)
    assert outcome.method is method
    looks = [entry[f"{method}/eval_loss"] for entry in outcome.curves if f"{method}/eval_loss" in entry]
    assert len(steps) < changes["max_steps"]
    assert min(looks) not in looks[-3:]
    assert outcome.metrics[f"{method}_validation_loss"] == min(looks)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"learning_rate": 50.0}, "diverges|not finite|is nan|no longer stops"),
        ({"learning_rate": 1e-30}, "changed nothing|no longer stops"),
        ({"max_steps": 1, "learning_rate": 1e-6}, "no longer stops"),
        ({"target_modules": ("no_such_module",)}, "target_modules"),
        ({"target_modules": ("q_proj", "embed_tokens")}, "embed_tokens.*engines do not serve"),
        ({"max_length": 16}, "max_length 16"),
        ({"method": Method.KTO, "batch_size": 1}, "batch_size"),
    ],
)
def test_a_training_that_goes_wrong_has_failed(changes, reason, snapshot, base, tmp_path):
    with pytest.raises(TrainingError, match=reason):
        run_here(snapshot, base, tmp_path / "one" / "adapter", **changes)


def test_a_loss_that_is_no_number_stops_the_training_at_once(imitated, snapshot, base, tmp_path):
    from safetensors.torch import load_file, save_file

    parent = shutil.copytree(imitated.adapter, tmp_path / "one" / "adapter")
    weights = load_file(parent / "adapter_model.safetensors")
    next(iter(weights.values()))[0, 0] = math.nan
    save_file(weights, parent / "adapter_model.safetensors")
    with pytest.raises(TrainingError, match="is nan at step 1"):
        run_here(snapshot, base, tmp_path / "two" / "adapter", parent)
    assert not (tmp_path / "two" / "adapter").exists()


def train(snapshot, base, folder: Path, on_progress=None, **changes) -> Adapter:
    recipe = RECIPE.model_copy(update=changes)
    return train_adapter(snapshot, recipe, *base, None, folder / "adapters", folder / "work", on_progress)


_STARTER = """
import sys
from pathlib import Path
from pipeline.records import BaseModelRef
from pipeline.train.process import train_adapter
from pipeline.train.recipe import Recipe
recipe, base, snapshot, base_path, folder = sys.argv[1:]
train_adapter(
    Path(snapshot), Recipe.model_validate_json(recipe), BaseModelRef.model_validate_json(base), Path(base_path),
    None, Path(folder, "adapters"), Path(folder, "work"), lambda *step: print(*step, flush=True),
)
"""


@pytest.mark.parametrize("killed_at", [9, 33], ids=["in the first phase", "in the second phase"])
def test_a_killed_training_goes_on_where_it_was_and_ends_as_if_it_had_not_been(
    killed_at, preferred, snapshot, base, tmp_path
):
    changes = {"max_steps": 40, "method": "auto"}
    recipe = RECIPE.model_copy(update=changes)
    arguments = [recipe.model_dump_json(), base[0].model_dump_json(), str(snapshot), str(base[1]), str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", _STARTER, *arguments], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        while not starter.stdout.readline().startswith(f"{killed_at} 40 ".encode()):
            assert starter.poll() is None
        starter.send_signal(signal.SIGKILL)
    _wait_until_gone(tmp_path / "work")
    assert not list(tmp_path.glob("adapters/*"))

    steps: list[int] = []
    adapter = train(snapshot, base, tmp_path, lambda step, *_: steps.append(step), **changes)
    assert 1 < steps[0] <= killed_at + 1
    assert steps == list(range(steps[0], 41))
    folder = tmp_path / "adapters" / adapter.sha256
    assert adapter_digest(folder) == adapter.sha256
    assert [path.stat().st_mode & 0o222 for path in folder.iterdir()] == [0, 0]
    assert (adapter.business, adapter.method, adapter.rank) == ("support", Method.DPO, 8)
    assert sorted(path.suffix for path in (tmp_path / "work").iterdir()) == [".lock"]
    # Another process, another hash seed, never killed: the same bytes and figures.
    assert adapter_digest(preferred.adapter) == adapter.sha256
    assert preferred.outcome.metrics == adapter.metrics

    assert train(snapshot, (base[0], tmp_path / "gone"), tmp_path, **changes) == adapter  # not trained again


def test_two_processes_train_what_one_does(imitated, snapshot, base, tmp_path):
    from safetensors.torch import load_file

    def tensors(adapter: Path):
        return load_file(adapter / "adapter_model.safetensors")

    changes = {"method": "auto", "max_steps": 8, "learning_rate": 1e-4, "start_from": "stable"}
    one, _ = run_here(snapshot, base, tmp_path / "one" / "adapter", imitated.adapter, **changes)
    start = an_adapter("support", adapter_digest(imitated.adapter), base=base[0]), imitated.adapter
    two = train_adapter(
        snapshot,
        RECIPE.model_copy(update=changes | {"batch_size": 2}),
        *base,
        start,
        tmp_path / "adapters",
        tmp_path / "work",
        launch=Path("configs/training/two-cpus.yaml").absolute(),
    )
    assert two.metrics == pytest.approx(one.metrics, rel=1e-3)
    # Adam turns a gradient near zero into a whole step of either sign, so tensors are compared as a whole.
    before, expected = tensors(imitated.adapter), tensors(tmp_path / "one" / "adapter")
    found = tensors(tmp_path / "adapters" / two.sha256)
    way = sum(float((expected[name] - before[name]).abs().sum()) for name in before)
    apart = sum(float((expected[name] - found[name]).abs().sum()) for name in before)
    assert apart < 0.15 * way


def test_a_version_s_training_file_trains_the_same_adapter_again(base, tmp_path):
    configs, state = tmp_path / "configs", tmp_path / "state"
    shutil.copytree("configs", configs)
    system = yaml.safe_load((configs / "tuneloop.yaml").read_text())
    model = {"id": "tiny", "path": str(base[1]), "revision": "r1"}
    (configs / "tuneloop.yaml").write_text(yaml.safe_dump(system | {"state_dir": str(state), "base_model": model}))
    snapshot = a_snapshot(state / "snapshots", *(an_sft(a_source(), question, GOOD) for question in questions()))
    adapter = train(snapshot, base, state, max_steps=30)
    file = training_run_path(state / "adapters", adapter.training_id)

    def again(file: Path, into: str):
        return CliRunner().invoke(main, ["train", str(file), "--configs", str(configs), "--into", str(tmp_path / into)])

    same = again(file, "again")
    assert same.exit_code == 0, same.output
    assert f"the same adapter: {tmp_path / 'again' / adapter.sha256}" in same.output
    assert adapter_digest(tmp_path / "again" / adapter.sha256) == adapter.sha256

    noted = read_training_run(file)
    other = noted.model_copy(update={"adapter_sha256": "0" * 64, "packages": {**noted.packages, "trl": "0.1"}})
    (tmp_path / "other.json").write_text(other.model_dump_json())
    found = again(tmp_path / "other.json", "again")
    assert found.exit_code == 1
    assert "what differs: trl 0.1 -> " in found.output

    based = noted.training.model_copy(update={"base": base[0].model_copy(update={"revision": "r2"})})
    (tmp_path / "other.json").write_text(noted.model_copy(update={"training": based}).model_dump_json())
    refused = again(tmp_path / "other.json", "never")
    assert refused.exit_code == 2
    assert "tiny@r2" in refused.output
    (tmp_path / "other.json").write_text("{}")
    assert "is no file of a training" in again(tmp_path / "other.json", "never").output
    assert not (tmp_path / "never").exists()


def _wait_until_gone(work: Path) -> None:
    """The training process ends by itself once its starter is gone."""
    for _ in range(300):
        running = subprocess.run(["pgrep", "-f", str(work)], capture_output=True, check=False)
        if running.returncode:
            return
        time.sleep(0.1)
    pytest.fail("the training process outlived its starter")


def test_a_failed_training_says_why_and_leaves_only_its_log(snapshot, base, tmp_path):
    with pytest.raises(TrainingError, match=r"training [0-9a-f]{8}: .*(diverges|not finite|is nan|no longer stops)"):
        train(snapshot, base, tmp_path, learning_rate=0.99)
    assert not list(tmp_path.glob("adapters/*"))
    assert sorted(path.suffix for path in (tmp_path / "work").iterdir()) == [".lock", ".log"]


def test_a_missing_base_is_named_in_one_line(snapshot, base, tmp_path):
    with pytest.raises(TrainingError) as caught:
        train(snapshot, (base[0], tmp_path / "nowhere"), tmp_path)
    assert "nowhere" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_parent_of_another_base_or_rank_is_refused(snapshot, base, tmp_path):
    parent = Adapter(
        sha256="0" * 64,
        business="support",
        base=base[0],
        rank=8,
        method=Method.SFT,
        snapshot_id="0" * 64,
        training_id="0" * 64,
        parent_sha256=None,
        metrics={},
    )
    other_base = base[0].model_copy(update={"digest": "1" * 64})
    stranger = parent.model_copy(update={"base": other_base})
    recipe = RECIPE.model_copy(update={"start_from": "stable"})
    for adapter, changed in ((stranger, recipe), (parent, recipe.model_copy(update={"rank": 16}))):
        with pytest.raises(TrainingError, match="start_from to base"):
            train_adapter(snapshot, changed, *base, (adapter, tmp_path), tmp_path / "adapters", tmp_path / "work")
