# make demo | make test: each does its own set-up. `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help setup demo down test chaos prove prove-fast check format bench-pii bench-gate bench-gateway bench-dedup bench-clean bench-train bench-learning bench-rollout

PY := .venv/bin/python

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup:  ## make the two environments and the base model; does nothing when they are there
	@infra/launch/setup.sh

demo: setup  ## run the loop on real parts with simulated users; again: a second night
	@$(PY) -m examples.demo

down:  ## stop everything that the demo started
	@$(PY) -m flows.cli down --configs examples/demo/configs

test: setup  ## unit tests first, then contract and integration tests on the real servers
	@$(PY) -m pytest tests/unit -n 2 --dist worksteal
	@$(PY) -m pytest tests/contract tests/integration

chaos: setup  ## kill, hang and starve parts of a running stack under live streams, and check what was promised
	@$(PY) -m tests.chaos $(ARGS)

prove-fast: setup  ## play a thousand worlds whose truth is known with modelled models, and write docs/proof.html
	@$(PY) -m tests.proof --fast $(ARGS)

prove: setup  ## play nights whose truth is known on the real stack; ARGS="--only mechanics": a part of it
	@$(PY) -m tests.proof $(ARGS)

bench-gateway: setup  ## measure the gateway against nginx, Envoy and LiteLLM; ARGS=--quick: a short look
	@$(PY) -m tests.benchmarks.gateway $(ARGS)

bench-dedup: setup  ## measure the search for near-duplicates against datasketch and against the exact truth
	@$(PY) -m tests.benchmarks.dedup $(ARGS)

bench-rollout: setup  ## measure the way from a click in MLflow to live traffic, and back, against an nginx that is reloaded
	@$(PY) -m tests.benchmarks.rollout $(ARGS)

bench-train: setup  ## measure training against TRL's plain trainers
	@$(PY) -m tests.benchmarks.train $(ARGS)

bench-clean: setup  ## measure a night from the event log to the snapshot; ARGS=--full: 300,000 interactions as well
	@$(PY) -m tests.benchmarks.clean $(ARGS)

bench-learning: setup  ## measure whether SFT, DPO and KTO help, on pairs that were not learned (an hour)
	@$(PY) -m tests.benchmarks.learning $(ARGS)

bench-pii: setup  ## measure what is found of personal data, and what it costs, against plain Presidio
	@$(PY) -m tests.benchmarks.pii $(ARGS)

bench-gate: setup  ## measure how often the gate and the canary are wrong, and what they can find
	@$(PY) -m tests.benchmarks.gate $(ARGS)

check: setup  ## lint, format, types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format:  ## apply the formatter and the linter's safe fixes
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
