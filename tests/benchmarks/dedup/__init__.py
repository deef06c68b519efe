"""Near-duplicates against a plain loop over datasketch: `make bench-dedup`; `python -m tests.benchmarks.dedup --quick`.

Quality: which pairs of 5,000 texts the search reports, beside all pairs counted exactly. Speed: CPU time of one core
for keeping the first of each set of near texts, both in turns on the same texts. The guard of facts comes after either.
"""
