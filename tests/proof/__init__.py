"""Planted truth: worlds whose truth is known are played, and what the product says is held against it.

`make prove-fast` plays a thousand worlds in this process with modelled models; `make prove` plays nights on the real
gateway, vLLM, MLflow, Prefect and controller. Each writes its rows to `build/proof/`, and `docs/proof.html` shows them.
"""
