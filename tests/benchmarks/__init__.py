"""What was promised of speed and quality, measured beside named peers: one package a benchmark, each run by `make`.

Here is what they share: the machine, the rows that hold a goal each, and what a run leaves behind.
"""
