#!/usr/bin/env bash
# Makes the two virtual environments: .venv (everything but the engine) and .venv-engine (vLLM, whose pins clash).
# Run again it does nothing, until a requirements file changes. With a CUDA GPU it takes the CUDA builds, else the CPU ones.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=${PYTHON:-python3.11}
mkdir -p build

fail() { echo "setup: $1" >&2; exit 1; }
command -v "$python" >/dev/null || fail "$python not found; install Python 3.11 or name it: PYTHON=/path/to/python3.11 make ..."

has_cuda() { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }
if has_cuda; then flavour=cuda; else flavour=cpu; fi

stamp_of() { cat pyproject.toml "$@" | sha256sum | cut -c1-16; }

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$1"; }

log_of() { echo "build/setup$1.log"; }  # log_of VENV

pip_in() {  # pip_in VENV ARGS... : quiet, with its last words shown if it fails
  local venv=$1 log; log=$(log_of "$1"); shift
  "$venv/bin/python" -m pip --disable-pip-version-check install -q "$@" >>"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    fail "pip could not install '$*'; the whole log is in $log"
  }
}

torch_in() {
  if [ "$flavour" = cuda ]; then pip_in "$1" "torch==$2"; return; fi
  # The '+cpu' is what keeps pip from taking the CUDA build, gigabytes that a machine without a GPU cannot use.
  "$1/bin/python" -m pip --disable-pip-version-check install -q "torch==$2+cpu" >>"$(log_of "$1")" 2>&1 || fail \
    "pip finds no CPU build of torch $2; add PyTorch's index of CPU wheels (PIP_EXTRA_INDEX_URL, see PyTorch's 'Get started' page)"
}

main_env() {
  local stamp; stamp=$flavour-$(stamp_of requirements/lock.txt)
  [ "$(cat .venv/stamp 2>/dev/null)" = "$stamp" ] && return
  say "main environment (.venv): torch"
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  torch_in .venv 2.13.0
  say "main environment (.venv): training, flows, gateway, tests (about two minutes)"
  pip_in .venv -c requirements/lock.txt -e ".[all]"
  echo "$stamp" >.venv/stamp
}

engine_env() {
  local stamp; stamp=$flavour-$(stamp_of requirements/engine-*.txt)
  [ "$(cat .venv-engine/stamp 2>/dev/null)" = "$stamp" ] && return
  [ -x .venv-engine/bin/python ] || "$python" -m venv .venv-engine
  if [ "$flavour" = cuda ]; then
    say "engine environment (.venv-engine): vLLM for CUDA (several GB)"
    pip_in .venv-engine -r requirements/engine-cuda.txt
  else
    say "engine environment (.venv-engine): vLLM for the CPU (about a minute)"
    torch_in .venv-engine 2.13.0
    pip_in .venv-engine -r requirements/engine-cpu.txt
    pip_in .venv-engine --no-deps -r requirements/engine-cpu-nodeps.txt
    pip_in .venv-engine --no-deps --no-build-isolation ./requirements/vllm-cpu-name
  fi
  echo "$stamp" >.venv-engine/stamp
}

base_model() {
  [ -f var/models/smollm2-135m-instruct/config.json ] && return
  say "base model: SmolLM2-135M-Instruct, converted once (half a minute)"
  .venv/bin/python -m pipeline.train.base_model --out var/models/smollm2-135m-instruct
}

rm -f "$(log_of .venv)" "$(log_of .venv-engine)"
trap 'trap - TERM; kill 0' INT TERM  # what runs in the background does not hear a Ctrl-C
(main_env; base_model) & main=$!
engine_env & engine=$!
wait "$main" || failed=1
wait "$engine" || failed=1
[ -z "${failed:-}" ] || exit 1
say "set-up complete"
