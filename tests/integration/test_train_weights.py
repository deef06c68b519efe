"""Weights of rows weigh the loss, seen in the gradients; with equal weights they are those of TRL's own trainers."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.records import Method
from pipeline.train.plan import Phase
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, SftRow, VoteRow
from tests.tiny_model import make_tiny_model

PROMPTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14, 15, 16]]
GOOD = [[20, 21, 22, 2], [23, 2], [24, 25, 26, 27, 28, 2]]
BAD = [[30, 2], [31, 32, 33, 2], [34, 35, 2]]
weights = st.lists(st.floats(0.05, 5), min_size=3, max_size=3)
few = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


def rows_of(method: Method, weigh: list[float]):
    match method:
        case Method.SFT:
            return [SftRow(p, g, w, "u") for p, g, w in zip(PROMPTS, GOOD, weigh, strict=True)]
        case Method.DPO:
            return [PairRow(p, g, b, w, "u") for p, g, b, w in zip(PROMPTS, GOOD, BAD, weigh, strict=True)]
        case Method.KTO:
            return [VoteRow(p, g, n != 1, w, "u") for n, (p, g, w) in enumerate(zip(PROMPTS, GOOD, weigh, strict=True))]


def a_model(base: Path):
    """With an adapter that already changes something, so that every gradient is there."""
    import torch

    from pipeline.train.model import load_model

    torch.manual_seed(1)
    model = load_model(base, Recipe(rank=8, alpha=16), None)
    for name, tensor in model.named_parameters():
        if "lora_B" in name:
            tensor.data.normal_(std=0.05)
    return model


def gradients(trainer, rows: list[int]):
    """Of the loss of one optimiser step over these rows of the trainer's data, in the trainer's own batches."""
    import torch

    trainer.model.zero_grad()
    size = trainer.args.per_device_train_batch_size
    columns = [name for name in trainer.train_dataset.column_names if name in _kept(trainer)]
    chosen = trainer.train_dataset.select(rows).select_columns(columns)
    batches = [
        trainer.data_collator([chosen[i] for i in range(n, min(n + size, len(rows)))])
        for n in range(0, len(rows), size)
    ]
    for batch in batches:
        (trainer.compute_loss(trainer.model, batch) / len(batches)).backward()
    found = [p.grad.clone() for name, p in trainer.model.named_parameters() if ".default." in name]
    return torch.cat([gradient.flatten() for gradient in found])


def _kept(trainer) -> list[str]:
    trainer._set_signature_columns_if_needed()
    return trainer._signature_columns


def ours(base: Path, method: Method, weigh: list[float], folder: Path):
    from pipeline.train.tokenizer import load_rendering
    from pipeline.train.trainers import make_trainer

    recipe = Recipe(method=method, rank=8, alpha=16, batch_size=3, dpo_sft_weight=0.5)
    phase, folder = Phase(method, rows_of(method, weigh)), Path(tempfile.mkdtemp(dir=folder))
    return make_trainer(a_model(base), load_rendering(base, 64).tokenizer, phase, 1, recipe, folder)


def plain(base: Path, method: Method, folder: Path):
    """TRL's trainer over the same rows, padded, three rows a batch."""
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

    data = ours(base, method, [1.0, 1.0, 1.0], folder).train_dataset.remove_columns("weight")
    shared = {"output_dir": str(folder), "bf16": False, "use_cpu": True, "gradient_checkpointing": False}
    shared |= {"per_device_train_batch_size": 3, "max_length": None, "report_to": "none"}
    given = {"model": a_model(base), "processing_class": AutoTokenizer.from_pretrained(base)}

    class Prepared:
        def _prepare_dataset(self, dataset, *_, **__):
            return dataset

    match method:
        case Method.SFT:
            args = SFTConfig(dataset_kwargs={"skip_prepare_dataset": True}, **shared)
            return SFTTrainer(args=args, train_dataset=data, **given)
        case Method.DPO:
            data = data.remove_columns(["ref_chosen_logps", "ref_rejected_logps"])
            args = DPOConfig(beta=0.1, loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.5], **shared)
            return type("Plain", (Prepared, DPOTrainer), {})(args=args, train_dataset=data, **given)
        case Method.KTO:
            data = data.remove_columns(["ref_logps", "ref_KL_logps"])
            args = KTOConfig(beta=0.1, desirable_weight=0.5, undesirable_weight=1.0, **shared)
            return type("Plain", (Prepared, KTOTrainer), {})(args=args, train_dataset=data, **given)


@pytest.mark.parametrize("method", [Method.SFT, Method.KTO])
def test_equal_weights_give_the_gradients_of_trl(method, base, tmp_path):
    import torch

    expected = gradients(plain(base, method, tmp_path), [0, 1, 2])
    found = gradients(ours(base, method, [0.7, 0.7, 0.7], tmp_path), [0, 1, 2])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_equal_weights_give_the_dpo_gradients_of_trl_pair_by_pair(base, tmp_path):
    # Pair by pair, because TRL's SFT term is the mean over a batch's tokens and ours, with one pair a batch, over
    # each answer's.
    import torch

    trainer = plain(base, Method.DPO, tmp_path)
    expected = sum(gradients(trainer, [row]) for row in range(3)) / 3
    found = gradients(ours(base, Method.DPO, [2.0, 2.0, 2.0], tmp_path), [0, 1, 2])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@few
@given(weights)
def test_a_row_of_sft_weighs_what_its_weight_says(base, tmp_path, weigh):
    # Each row's own gradient is the mean over its tokens; a step's is the weighted sum over all tokens by their number.
    import torch

    trainer = ours(base, Method.SFT, weigh, tmp_path)
    tokens = [len(answer) for answer in GOOD]
    single = ours(base, Method.SFT, [1.0, 1.0, 1.0], tmp_path)
    parts = [gradients(single, [row]) * tokens[row] for row in range(3)]
    mean = sum(weigh) / 3
    expected = sum(w / mean * part for w, part in zip(weigh, parts, strict=True)) / sum(tokens)
    torch.testing.assert_close(gradients(trainer, [0, 1, 2]), expected, rtol=1e-3, atol=1e-6)


@few
@given(weights)
def test_a_pair_weighs_what_its_weight_says(base, tmp_path, weigh):
    import torch

    single = ours(base, Method.DPO, [1.0, 1.0, 1.0], tmp_path)
    parts = [gradients(single, [row]) for row in range(3)]
    mean = sum(weigh) / 3
    expected = sum(w / mean * part for w, part in zip(weigh, parts, strict=True)) / 3
    trainer = ours(base, Method.DPO, weigh, tmp_path)
    torch.testing.assert_close(gradients(trainer, [0, 1, 2]), expected, rtol=1e-3, atol=1e-6)


def test_a_vote_weighs_what_its_weight_says(base, tmp_path):
    # The distance to the reference is common to a batch, so rows cannot be taken apart; but the loss is linear in the
    # weights.
    import torch

    tiny = 1e-6
    alone = [[3.0 if row == n else tiny for row in range(3)] for n in range(3)]
    parts = [gradients(ours(base, Method.KTO, weigh, tmp_path), [0, 1, 2]) for weigh in alone]
    found = gradients(ours(base, Method.KTO, [0.5, 2.0, 0.5], tmp_path), [0, 1, 2])
    expected = (0.5 * parts[0] + 2.0 * parts[1] + 0.5 * parts[2]) / 3
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)
    assert not torch.allclose(parts[0], parts[1], rtol=0.1)
