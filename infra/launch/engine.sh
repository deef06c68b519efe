#!/usr/bin/env bash
# Starts one vLLM engine on loopback, with a CUDA GPU if there is one, else on the CPU.
#   engine.sh --name NAME --port PORT --model DIR --served-id ID [--serves base|adapters|both]
#             [--max-rank N] [--max-adapters N] [--max-model-len N] [--kv-mb N]
# TUNELOOP_ENGINE_KEY, if set, is the engine's API key. It does not guard every path (loading is open at /adapters), so
# the port must be reachable by gateway, controller and flows alone.
# Ends with 2: wrong arguments, 3: no model, 4: port taken, 5: no disk space, 6: no vLLM.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
vllm=$root/.venv-engine/bin/vllm

fail() { echo "engine ${name:-}: $2" >&2; exit "$1"; }

name='' port='' model='' served_id='' serves=both max_rank=16 max_adapters=16 max_model_len='' kv_mb=256
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || fail 2 "$1 needs a value"
  case $1 in
    --name) name=$2 ;;
    --port) port=$2 ;;
    --model) model=$2 ;;
    --served-id) served_id=$2 ;;
    --serves) serves=$2 ;;
    --max-rank) max_rank=$2 ;;
    --max-adapters) max_adapters=$2 ;;
    --max-model-len) max_model_len=$2 ;;
    --kv-mb) kv_mb=$2 ;;
    *) fail 2 "unknown argument $1; see the head of $0" ;;
  esac
  shift 2
done
for needed in name port model served_id; do
  [ -n "${!needed}" ] || fail 2 "--${needed//_/-} is missing"
done
case $serves in base | adapters | both) ;; *) fail 2 "--serves $serves is impossible; base, adapters or both" ;; esac
case " 1 8 16 32 64 128 256 320 512 " in *" $max_rank "*) ;; *)
  fail 2 "--max-rank $max_rank is impossible; vLLM takes 1, 8, 16, 32, 64, 128, 256, 320 or 512" ;;
esac

[ -f "$model/config.json" ] || fail 3 "no model in $model; \`make setup\` puts it there, or mend base_model.path"
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
  fail 4 "port $port is taken by another program; stop it or change the engine's url"
fi
scratch=${TMPDIR:-/tmp}
free_kb=$(df -Pk "$scratch" | awk 'NR == 2 { print $4 }')
[ "$free_kb" -ge 102400 ] || fail 5 "$scratch has $((free_kb / 1024)) MB free, 100 MB are needed; free some space"
[ -x "$vllm" ] || fail 6 "no vLLM in $root/.venv-engine; \`make setup\` installs it"

export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 TRANSFORMERS_OFFLINE=1
export VLLM_NO_USAGE_STATS=1 VLLM_DO_NOT_TRACK=1 DO_NOT_TRACK=1
if [ -n "${TUNELOOP_ENGINE_KEY:-}" ]; then
  export VLLM_API_KEY=$TUNELOOP_ENGINE_KEY  # an argument would stand in the process list
fi
for secret in "${!TUNELOOP_@}"; do unset "$secret"; done  # none of them is the engine's business

options=(--host 127.0.0.1 --port "$port" --served-model-name "$served_id" --dtype bfloat16 --disable-uvicorn-access-log)
if [ "$serves" != base ]; then
  export VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
  # Slots are what one batch may mix. The rest waits in memory: an adapter that was pushed out of it is read from disk
  # again in the middle of a request.
  slots=$((max_adapters < 8 ? max_adapters : 8))
  options+=(--enable-lora --max-lora-rank "$max_rank" --max-loras "$slots" --max-cpu-loras $((max_adapters + 8)))
  # Attention and feed-forward layers, but not lm_head: with an adapter's lm_head in place, a request for the prompt's
  # log-probabilities that is batched with others ends the CPU engine (shapes of prompt and batch are confused).
  options+=(--lora-target-modules q_proj k_proj v_proj o_proj qkv_proj gate_proj up_proj down_proj gate_up_proj)
fi

if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
  # One engine alone takes the GPU; `base` and `adapters` are a pair that shares it.
  [ "$serves" = both ] && share=0.85 || share=0.40
  options+=(--gpu-memory-utilization "$share")
  [ -z "$max_model_len" ] || options+=(--max-model-len "$max_model_len")
else
  options+=(--max-model-len "${max_model_len:-1024}" --max-num-batched-tokens 1024)
  options+=(--kv-cache-memory-bytes $((kv_mb * 1024 * 1024)))
  # The worker inside the engine's own process: 0.4 GB less, a quicker start, and no pinning to core 0, which two
  # engines on one machine would share. One thread: OpenMP's threads spin, and two on two busy cores are ten times
  # slower than one.
  export VLLM_ENABLE_V1_MULTIPROCESSING=0 OMP_NUM_THREADS="${ENGINE_THREADS:-1}"
  unset VLLM_CPU_KVCACHE_SPACE VLLM_CPU_OMP_THREADS_BIND
  options+=(--distributed-executor-backend uni)
  case $serves in
    # Without eager mode the CPU build compiles for minutes and then answers wrongly.
    base) options+=(--enforce-eager --max-num-seqs 16) ;;
    adapters) options+=(--max-num-seqs 8) ;;
    # A base request batched with an adapter's is answered by the wrong adapter: one at a time.
    both) options+=(--max-num-seqs 1) ;;
  esac
fi
exec "$vllm" serve "$model" "${options[@]}"
