"""The base model with its adapter: loaded to be trained, and written as engines load it."""

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from transformers.utils.import_utils import is_bitsandbytes_available, is_flash_attn_2_available

from pipeline.errors import TrainingError
from pipeline.records import BaseModelRef
from pipeline.train.attention import ROW_BY_ROW
from pipeline.train.checks import check_targets
from pipeline.train.recipe import Recipe


def load_model(base_path: Path, recipe: Recipe, parent: Path | None) -> Any:
    """The base model with one trainable adapter, `default`: the parent's, or a fresh one that changes nothing yet.

    Raises:
        TrainingError: the recipe asks for modules that the model has not, or for 4 bits where they cannot be had.
    """
    base = AutoModelForCausalLM.from_pretrained(base_path, **_placement(recipe))
    if recipe.quantization == "4bit":
        base = prepare_model_for_kbit_training(base)  # type: ignore[no-untyped-call]
    if parent is not None:
        return PeftModel.from_pretrained(base, parent, is_trainable=True)
    targets = recipe.target_modules
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
        lora_dropout=0.0,
        # What engines refuse or ignore is not on offer: no bias, no DoRA, no modules saved whole.
        bias="none",
        use_dora=False,
        modules_to_save=None,
    )
    try:
        model = get_peft_model(base, config)
    except ValueError as error:  # PEFT names the modules that it did not find
        raise TrainingError(f"target_modules {targets!r}: {' '.join(str(error).split())[:200]}") from error
    check_targets(name for name, tensor in model.named_parameters() if tensor.requires_grad)
    return model


def _placement(recipe: Recipe) -> dict[str, Any]:
    """Number format and attention kernel: 32 bits on a CPU, where they train better and cost no more."""
    if not torch.cuda.is_available():
        if recipe.quantization != "none":
            raise TrainingError(f"training.quantization '{recipe.quantization}' needs a GPU; set it to none")
        return {"dtype": torch.float32, "attn_implementation": ROW_BY_ROW}
    attention = "flash_attention_2" if is_flash_attn_2_available() else ROW_BY_ROW
    given: dict[str, Any] = {"dtype": torch.bfloat16, "attn_implementation": attention}
    if recipe.quantization == "4bit":
        if not is_bitsandbytes_available():
            raise TrainingError("training.quantization '4bit' needs bitsandbytes: `pip install bitsandbytes`")
        given["quantization_config"] = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    return given


def save_adapter(model: Any, base: BaseModelRef, folder: Path) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`, and nothing else.

    The configuration names the base by its id and revision instead of a path of this machine, and is written in one
    canonical form: the same training gives the same bytes.

    Raises:
        TrainingError: a tensor is not finite, or the adapter still changes nothing.
    """
    moved = False
    for name, tensor in model.named_parameters():
        if ".default." in name and not torch.isfinite(tensor).all():
            raise TrainingError(f"after training {name} holds values that are not finite; lower learning_rate")
        moved = moved or ("lora_B.default" in name and bool(tensor.any()))
    if not moved:
        raise TrainingError("training changed nothing: every update was zero; raise learning_rate or the steps")
    model.save_pretrained(folder, selected_adapters=["default"])
    for path in folder.iterdir():
        if path.name not in ("adapter_config.json", "adapter_model.safetensors"):
            path.unlink()
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"base_model_name_or_path": base.id, "revision": base.revision, "inference_mode": True}
    for key, value in config.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            config[key] = sorted(value)  # PEFT keeps them in a set, whose order changes from process to process
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
