"""Whether an adapter fits the base model and the engines, from its files alone, before any engine is called.

Engines check almost none of this: vLLM takes adapters of another base, with missing layers or narrower tensors with
`200`, and one with a NaN spoils the answers of its neighbours.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.errors import ServingError
from pipeline.records import BaseModelRef
from pipeline.serving.tensors import Tensor, largest_magnitude, read_header
from pipeline.train.base_ref import base_model_ref
from pipeline.train.process import ADAPTER_FILES

_CONFIG, _WEIGHTS = ADAPTER_FILES
_MAX_CONFIG_BYTES = 1024 * 1024
MAX_MAGNITUDE = 1e4
"""Trained values are below 100; far larger ones are finite here and overflow inside a layer."""

_HARMLESS = {
    *("auto_mapping", "inference_mode", "lora_dropout", "megatron_core", "peft_type", "peft_version"),
    *("qalora_group_size", "task_type", "use_rslora"),
}
_CHECKED = {
    *("alpha_pattern", "base_model_name_or_path", "bias", "init_lora_weights", "lora_alpha", "r", "rank_pattern"),
    *("revision", "target_modules"),
}
_PLAIN_INITS = (None, True, False, "gaussian", "orthogonal")
"""Other ways to begin (PiSSA, OLoRA, CorDA, LoftQ) change the base model's own weights."""

_LORA = re.compile(
    r"base_model\.model\.(?P<module>.+\.layers\.(?P<layer>\d{1,5})\.[\w.]+)\.lora_(?P<side>[AB])\.weight"
)
_BASE = re.compile(r"(?P<module>.+\.layers\.(?P<layer>\d{1,5})\.[\w.]+)\.weight")


def validate_adapter(folder: Path, base_path: Path, base: BaseModelRef, max_rank: int, adapters_dir: Path) -> None:
    """Refuse an adapter that engines cannot serve rightly.

    Args:
        folder: the adapter's files.
        base_path: folder of the base model that engines serve.
        base: the base model that the adapter was trained on; it must be the one in `base_path`.
        max_rank: the highest rank that the engines were started for.
        adapters_dir: the folder that all adapters lie in; engines read nothing else.

    Raises:
        ServingError: names the adapter, what is wrong with it, the value, and the limit.
    """
    try:
        _check_files(folder, adapters_dir)
        config = _read_config(folder / _CONFIG)
        _check_config(config, base, max_rank)
        tensors = read_header(folder / _WEIGHTS)
        ranks = _check_names(tensors, config)
        _check_base(base_path, base)
        _check_shapes(tensors, ranks, config, _base_shapes(base_path))
        for name, tensor in tensors.items():
            largest = largest_magnitude(folder / _WEIGHTS, tensor)
            if not largest <= MAX_MAGNITUDE:  # NaN is not below anything
                raise ValueError(
                    f"tensor '{name}' holds {largest:g}; all values must be finite, at most {MAX_MAGNITUDE:g}"
                )
    except (ValueError, OSError) as error:
        raise ServingError(f"adapter {folder.name[:80]!r} cannot be served: {error}; train it again") from error


def _check_files(folder: Path, adapters_dir: Path) -> None:
    if folder.resolve().parent != adapters_dir.resolve() or folder.is_symlink():
        raise ValueError(f"{folder} is no folder of {adapters_dir}, where engines read adapters")
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    names = {entry.name for entry in folder.iterdir()}
    for name in ADAPTER_FILES:
        if name not in names or not (folder / name).is_file() or (folder / name).is_symlink():
            raise ValueError(f"{name} is missing or is no plain file")
    if others := sorted(names - set(ADAPTER_FILES)):
        raise ValueError(f"its folder holds {others[0]!r}; only {_CONFIG} and {_WEIGHTS} may be there (no pickles)")


def _read_config(path: Path) -> Mapping[str, object]:
    if path.stat().st_size > _MAX_CONFIG_BYTES:
        raise ValueError(f"{_CONFIG} is over {_MAX_CONFIG_BYTES} bytes")
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{_CONFIG} is no JSON") from error
    if not isinstance(config, dict):
        raise ValueError(f"{_CONFIG} is no JSON object")
    return config


def _check_config(config: Mapping[str, object], base: BaseModelRef, max_rank: int) -> None:
    if config.get("peft_type") != "LORA" or config.get("task_type") not in ("CAUSAL_LM", None):
        raise ValueError(f"it is {config.get('peft_type')!r} for {config.get('task_type')!r}, not LORA for CAUSAL_LM")
    if config.get("base_model_name_or_path") != base.id:
        raise ValueError(f"its base model is {config.get('base_model_name_or_path')!r}, engines serve {base.id!r}")
    if config.get("revision") not in (None, base.revision):
        raise ValueError(f"its base model's revision is {config.get('revision')!r}, engines serve {base.revision!r}")
    for rank in (config.get("r"), *_pattern(config, "rank_pattern").values()):
        if type(rank) is not int or not 1 <= rank <= max_rank:
            raise ValueError(f"its rank is {rank!r}; engines were started for 1 to {max_rank} (--max-lora-rank)")
    for alpha in (config.get("lora_alpha"), *_pattern(config, "alpha_pattern").values()):
        if type(alpha) not in (int, float) or not 0 < alpha <= MAX_MAGNITUDE:  # type: ignore[operator]
            raise ValueError(f"its lora_alpha is {alpha!r}, not a number above 0 and at most {MAX_MAGNITUDE:g}")
    if config.get("bias") not in ("none", None):
        raise ValueError(f"bias is {config.get('bias')!r}; engines serve adapters without biases only")
    if config.get("init_lora_weights") not in _PLAIN_INITS:
        raise ValueError(f"init_lora_weights is {config.get('init_lora_weights')!r}, which changes the base model")
    for key, value in config.items():
        if value and key not in _HARMLESS | _CHECKED:  # DoRA, modules_to_save, and whatever PEFT invents next
            raise ValueError(f"{key} is {value!r}; engines serve plain LoRA only, where it is unset")


def _pattern(config: Mapping[str, object], key: str) -> Mapping[str, object]:
    pattern = config.get(key) or {}
    if not isinstance(pattern, dict):
        raise ValueError(f"{key} is {pattern!r}, not a table of module names")
    for name in pattern:
        if not re.fullmatch(r"[\w.]+", name):
            raise ValueError(f"{key} has {name!r}; only plain module names are allowed")
    return pattern


def _check_names(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> dict[str, int]:
    """Module to its rank; every tensor is one side of a module's pair."""
    sides: defaultdict[str, set[str]] = defaultdict(set)
    for name in tensors:
        match = _LORA.fullmatch(name)
        if match is None:
            raise ValueError(f"tensor '{name}' is none that engines know (unsupported_tensors: no DoRA, no lm_head, …)")
        sides[match["module"]].add(match["side"])
    if not sides:
        raise ValueError(f"{_WEIGHTS} holds no tensor")
    for module, found in sides.items():
        if len(found) < 2:
            raise ValueError(f"module {module} has only lora_{found.pop()}, its other side is missing")
    patterns = _pattern(config, "rank_pattern").items()
    return {
        module: next((rank for suffix, rank in patterns if _ends_with(module, suffix)), config["r"])  # type: ignore[misc]
        for module in sides
    }


def _ends_with(module: str, suffix: str) -> bool:
    return module == suffix or module.endswith(f".{suffix}")


def _check_base(base_path: Path, base: BaseModelRef) -> None:
    served = base_model_ref(base_path, base.id, base.revision)
    if served.digest != base.digest:
        raise ValueError(
            f"it was trained on the base model {base.digest[:12]}, engines serve {served.digest[:12]} from {base_path}"
        )


def _base_shapes(base_path: Path) -> dict[str, tuple[int, int]]:
    """Module of the base model's layers to (outputs, inputs) of its weight."""
    shapes = {}
    for path in sorted(base_path.glob("*.safetensors")):
        for name, tensor in read_header(path).items():
            match = _BASE.fullmatch(name)
            if match and len(tensor.shape) == 2:
                shapes[match["module"]] = (tensor.shape[0], tensor.shape[1])
    return shapes


def _check_shapes(
    tensors: Mapping[str, Tensor],
    ranks: Mapping[str, int],
    config: Mapping[str, object],
    base_shapes: Mapping[str, tuple[int, int]],
) -> None:
    """Every module that the adapter changes must be changed in every layer, in the base model's shapes."""
    for module, rank in ranks.items():
        if module not in base_shapes:
            raise ValueError(f"module {module} is none of the base model's ({_layers(base_shapes)} layers)")
        outputs, inputs = base_shapes[module]
        for side, wanted in (("A", (rank, inputs)), ("B", (outputs, rank))):
            found = tensors[f"base_model.model.{module}.lora_{side}.weight"].shape
            if found != wanted:
                raise ValueError(
                    f"{module}.lora_{side} has shape {found}, rank {rank} and the base model ask for {wanted}"
                )
    targets = config.get("target_modules")
    names: Sequence[str]
    if isinstance(targets, list) and all(isinstance(target, str) for target in targets):
        names = targets
    else:  # a pattern: whatever one layer has, all must have
        names = sorted({module.rpartition(".")[2] for module in ranks})
    expected = {module for module in base_shapes if any(_ends_with(module, name) for name in names)}
    if missing := sorted(expected - ranks.keys()):
        raise ValueError(
            f"it leaves out {len(missing)} modules that it targets, such as {missing[0]}; the base model has "
            f"{_layers(base_shapes)} layers"
        )
    if extra := sorted(ranks.keys() - expected):
        raise ValueError(f"module {extra[0]} is none of its target_modules {names}")


def _layers(base_shapes: Mapping[str, tuple[int, int]]) -> int:
    return len({match["layer"] for module in base_shapes if (match := _BASE.fullmatch(f"{module}.weight"))})
