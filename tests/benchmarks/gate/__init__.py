"""How often gate and canary err, simulated: `make bench-gate`; `python -m tests.benchmarks.gate --quick`.

Thousands of nights go through `evals.gate.decide`, and thousands of canaries are looked at after every request with the
very arithmetic that judges real ones. Nothing is asked of an engine; everything is seeded.
"""
