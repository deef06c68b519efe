"""Adapters that engines would take and serve wrongly are refused from their files alone."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from pipeline.errors import ServingError
from pipeline.records import BaseModelRef
from pipeline.serving.validate import validate_adapter
from pipeline.train.base_ref import base_model_ref
from tests.adapter_files import SMALL, adapter_tensors, write_adapter, write_base

MAX_RANK = 16
Q0 = "base_model.model.model.layers.0.self_attn.q_proj"


class Bench:
    """A base model, an adapter that fits it, and the check."""

    def __init__(self, root: Path) -> None:
        self.base_path = write_base(root / "models" / "base")
        self.base = base_model_ref(self.base_path, "base", "r1")
        self.adapters_dir = root / "adapters"
        self.folder = write_adapter(self.adapters_dir / "good", adapter_tensors())

    def check(self, folder: Path | None = None, base: BaseModelRef | None = None) -> None:
        validate_adapter(folder or self.folder, self.base_path, base or self.base, MAX_RANK, self.adapters_dir)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_adapter_that_fits_is_accepted(bench: Bench) -> None:
    bench.check()


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("ok_r8", None),
        ("D-27_rank32", "32.*16"),
        ("D-28_modules_to_save", "modules_to_save"),
        ("D-29_dora", "use_dora"),
        ("D-30_no_base_path", "None.*SmolLM2-135M-Instruct"),
        ("D-30b_other_base", "Qwen2.5.*SmolLM2-135M-Instruct"),
        ("D-30c_config_says_r8_weights_r16", r"\(16, 576\).*\(8, 576\)"),
    ],
)
def test_reported_adapters(shared: Path, tmp_path: Path, folder: str, says: str | None) -> None:
    """Made after public bug reports; `ok_r8` fits a base model of one layer and width 576."""
    base_path = write_base(tmp_path / "models" / "base", {"self_attn.q_proj": (576, 576)}, layers=1)
    base = base_model_ref(base_path, "HuggingFaceTB/SmolLM2-135M-Instruct", "r1")
    cases = shared / "data" / "cases" / "adapters"
    if says is None:
        validate_adapter(cases / folder, base_path, base, MAX_RANK, cases)
    else:
        with pytest.raises(ServingError, match=says):
            validate_adapter(cases / folder, base_path, base, MAX_RANK, cases)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"base_model_name_or_path": "/models/base"}, "/models/base"),
        ({"revision": "r2"}, "'r2'.*'r1'"),
        ({"r": 32}, "32.*1 to 16"),
        ({"r": 0}, "rank is 0"),
        ({"r": True}, "rank is True"),
        ({"r": 16}, r"\(8, 16\).*\(16, 16\)"),
        ({"rank_pattern": {"q_proj": 64}}, "64.*1 to 16"),
        ({"rank_pattern": {"q_proj": 4}}, r"\(8, 16\).*\(4, 16\)"),
        ({"rank_pattern": {"(a+)+b": 8}}, "plain module names"),
        ({"alpha_pattern": {"q_proj": float("nan")}}, "nan"),
        ({"lora_alpha": 0}, "lora_alpha is 0"),
        ({"lora_alpha": float("inf")}, "inf"),
        ({"lora_alpha": "16"}, "'16'"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "'all'"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"layers_to_transform": [0]}, "layers_to_transform"),
        ({"init_lora_weights": "pissa"}, "pissa"),
        ({"something_new": {"on": True}}, "something_new"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"task_type": "SEQ_CLS"}, "SEQ_CLS"),
        ({"target_modules": ["q_proj", "v_proj", "k_proj"], "r": 8}, None),
        ({"target_modules": ["q_proj"]}, "v_proj is none of its target_modules"),
        ({"target_modules": r".*\.(q|v)_proj"}, None),
    ],
)
def test_its_configuration_must_be_plain_lora_for_this_base(
    bench: Bench, config: dict[str, Any], says: str | None
) -> None:
    folder = write_adapter(bench.adapters_dir / "changed", adapter_tensors(), **config)
    if says is None:
        bench.check(folder)
    else:
        with pytest.raises(ServingError, match=says):
            bench.check(folder)


def _without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda tensors: [tensors.pop(key) for key in list(tensors) if name in key]


def _with(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda tensors: tensors.update({name: value})


def _poisoned(value: float) -> Callable[[dict[str, Any]], object]:
    def change(tensors: dict[str, Any]) -> None:
        tensors[f"{Q0}.lora_B.weight"][3, 2] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without("layers.1."), "leaves out 2 modules.*layers.1.*2 layers"),
        (_without("layers.1.self_attn.v_proj"), "leaves out 1 modules.*layers.1.self_attn.v_proj"),
        (_without(f"{Q0}.lora_B"), "only lora_A"),
        (_without("lora"), "holds no tensor"),
        (_with(f"{Q0}.lora_magnitude_vector", np.ones(16, np.float32)), "lora_magnitude_vector.*unsupported_tensors"),
        (_with("base_model.model.lm_head.weight", np.ones((8, 16), np.float32)), "lm_head.weight.*unsupported"),
        (_with("base_model.model.lm_head.lora_A.weight", np.ones((8, 16), np.float32)), "lm_head.lora_A.*unsupported"),
        (_with(f"{Q0}.bias", np.ones(16, np.float32)), "bias.*unsupported"),
        (_with(f"{Q0}.lora_A.weight", np.ones((8, 15), np.float32)), r"\(8, 15\).*\(8, 16\)"),
        (_with(f"{Q0}.lora_B.weight", np.ones((17, 8), np.float32)), r"\(17, 8\).*\(16, 8\)"),
        (_with(f"{Q0}.lora_B.weight", np.ones((16, 4), np.float32)), r"\(16, 4\).*\(16, 8\)"),
        (_with(f"{Q0}.lora_B.weight", np.ones((16, 8), np.int32)), "type I32"),
        (_poisoned(float("nan")), "nan"),
        (_poisoned(float("-inf")), "inf"),
        (_poisoned(1e30), r"1e\+30"),
    ],
)
def test_its_tensors_must_fit_the_base_and_be_sane(
    bench: Bench, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    tensors = adapter_tensors()
    change(tensors)
    targets = ["q_proj", "v_proj"]
    with pytest.raises(ServingError, match=says):
        bench.check(write_adapter(bench.adapters_dir / "changed", tensors, target_modules=targets))


def test_more_layers_than_the_base_are_refused(bench: Bench) -> None:
    with pytest.raises(ServingError, match=r"layers\.2.*2 layers"):
        bench.check(write_adapter(bench.adapters_dir / "deep", adapter_tensors(layers=3)))


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_a_single_nan_in_half_precision_is_found(bench: Bench, kind: str) -> None:
    """NumPy has no bfloat16: its bits are written as integers and the header is renamed."""
    halves = {name: values.astype(np.float16) for name, values in adapter_tensors().items()}
    folder = write_adapter(bench.adapters_dir / "half", halves)
    path = folder / "adapter_model.safetensors"
    if kind == "BF16":
        bits = {name: (values.view(np.uint32) >> 16).astype(np.uint16) for name, values in adapter_tensors().items()}
        save_file(bits, path)
        _rename_type(path, "U16", "BF16")
    bench.check(folder)
    raw = bytearray(path.read_bytes())
    raw[-2:] = b"\xff\x7f"  # a NaN in both
    path.write_bytes(raw)
    with pytest.raises(ServingError, match="nan"):
        bench.check(folder)


def _rename_type(path: Path, old: str, new: str) -> None:
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = raw[8:end].replace(f'"{old}"'.encode(), f'"{new}"'.encode())
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[end:])


def test_another_base_under_the_same_name_is_refused(bench: Bench) -> None:
    other = bench.base.model_copy(update={"digest": "0" * 64})
    with pytest.raises(ServingError, match="trained on the base model 000000000000, engines serve"):
        bench.check(base=other)


def test_only_plain_folders_of_the_adapters_folder_are_read(bench: Bench, tmp_path: Path) -> None:
    outside = write_adapter(tmp_path / "elsewhere" / "good", adapter_tensors())
    link = bench.adapters_dir / "link"
    link.symlink_to(outside)
    up, url = bench.adapters_dir / ".." / "elsewhere" / "good", Path("https://example.org/adapters/good")
    for folder in (outside, link, up, url, bench.adapters_dir / "absent"):
        with pytest.raises(ServingError):
            bench.check(folder)


def test_nothing_else_may_lie_in_the_folder(bench: Bench) -> None:
    (bench.folder / "adapter_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ServingError, match=r"adapter_model\.bin.*no pickles"):
        bench.check()


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_both_files_must_be_there_and_be_files(bench: Bench, name: str, tmp_path: Path) -> None:
    (bench.folder / name).rename(tmp_path / name)
    with pytest.raises(ServingError, match=name):
        bench.check()
    (bench.folder / name).symlink_to(tmp_path / name)
    with pytest.raises(ServingError, match=name):
        bench.check()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_configuration_that_is_no_json_object_is_refused(bench: Bench, content: bytes) -> None:
    (bench.folder / "adapter_config.json").write_bytes(content)
    with pytest.raises(ServingError, match="no JSON"):
        bench.check()


@pytest.mark.parametrize("cut", [1, 100, 3000])
def test_a_cut_or_a_longer_file_is_refused(bench: Bench, cut: int) -> None:
    path = bench.folder / "adapter_model.safetensors"
    whole = path.read_bytes()
    for changed in (whole[:-cut], whole + b"\0" * cut, whole[:cut]):
        path.write_bytes(changed)
        with pytest.raises(ServingError):
            bench.check()


@pytest.fixture(scope="module")
def mutable(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("mutable"))


@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_changed_byte_is_refused_or_harmless(mutable: Bench, place: int, value: int) -> None:
    """What is accepted is what the format's own reader finds, with the right names and shapes."""
    folder = mutable.adapters_dir / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(mutable.folder, folder)
    path = folder / "adapter_model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] = value
    path.write_bytes(raw)
    try:
        mutable.check(folder)
    except ServingError:
        return
    read, expected = load_file(path), adapter_tensors(SMALL)
    assert {name: values.shape for name, values in read.items()} == {n: v.shape for n, v in expected.items()}
    assert all(np.isfinite(values).all() for values in read.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
KEYS = ["r", "lora_alpha", "target_modules", "rank_pattern", "alpha_pattern", "bias", "revision", "use_dora", "new"]


@given(key=st.sampled_from(KEYS), value=JSON)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_of_a_key_is_refused_or_means_the_same(mutable: Bench, key: str, value: object) -> None:
    config_path = mutable.folder / "adapter_config.json"
    before = config_path.read_text()
    config_path.write_text(json.dumps(json.loads(before) | {key: value}))
    try:
        mutable.check()
    except ServingError:
        return
    finally:
        config_path.write_text(before)
    if key in ("r", "new", "use_dora", "bias"):
        assert value in ({"r": (8,), "bias": ("none", None)}.get(key) or (None, False, 0, "", [], {}))
