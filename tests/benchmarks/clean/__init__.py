"""From the event log to a snapshot: `make bench-clean`, or `python -m tests.benchmarks.clean --quick`.

The event log is made and seeded: one English and one Chinese business with as many interactions each. Each is
taken from closed segments to a snapshot, one night after the other. And one business's last three days are asked of a
lake of ten million events.
"""
