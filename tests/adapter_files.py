"""Adapter folders and base models on disk for tests, small or in the real base model's shapes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

Shapes = Mapping[str, tuple[int, int]]
"""Module of a layer to (outputs, inputs)."""

SMALL: Shapes = {"self_attn.q_proj": (16, 16), "self_attn.v_proj": (8, 16)}
SMOLLM2: Shapes = {
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (192, 576),
    "self_attn.v_proj": (192, 576),
    "self_attn.o_proj": (576, 576),
    "mlp.gate_proj": (1536, 576),
    "mlp.up_proj": (1536, 576),
    "mlp.down_proj": (576, 1536),
}
Tensors = dict[str, np.ndarray[Any, Any]]


def write_base(folder: Path, shapes: Shapes = SMALL, layers: int = 2) -> Path:
    """A base model of zeros."""
    folder.mkdir(parents=True)
    weights = {
        f"model.layers.{layer}.{module}.weight": np.zeros(shape, np.float16)
        for layer in range(layers)
        for module, shape in shapes.items()
    }
    save_file(weights | {"model.embed_tokens.weight": np.zeros((32, 16), np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": layers}))
    return folder


def adapter_tensors(
    shapes: Shapes = SMALL, layers: int = 2, *, rank: int = 8, seed: int = 0, strength: float = 0.05
) -> Tensors:
    """Random pairs for every module; with strength 0 they change nothing, like a new adapter."""
    random = np.random.default_rng(seed)
    tensors: Tensors = {}
    for layer in range(layers):
        for module, (outputs, inputs) in shapes.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = random.normal(0, inputs**-0.5, (rank, inputs)).astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = random.normal(0, strength, (outputs, rank)).astype(np.float32)
    return tensors


def write_adapter(folder: Path, tensors: Tensors, *, rank: int = 8, **config: Any) -> Path:
    """A folder as the trainer leaves it; any key of its configuration can be given."""
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    values = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "base",
        "revision": "r1",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.split(".")[-3] for name in tensors}),
        "modules_to_save": None,
        "use_dora": False,
        "use_rslora": False,
        "rank_pattern": {},
        "alpha_pattern": {},
        "init_lora_weights": True,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(values | config))
    return folder
