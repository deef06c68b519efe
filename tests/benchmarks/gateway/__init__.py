"""The gateway against named peers: `make bench-gateway`, or `python -m tests.benchmarks.gateway --quick`.

One stub engine and one load generator stand on core 1, the gateway under test on core 0. Windows of all contestants
alternate within each round and every second round runs backwards, so that a machine that gets slower or busier does so
for all of them. The main figure is CPU time: on a shared machine it moves little, while requests a second follow
whoever else is running.
"""
