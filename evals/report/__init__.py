"""One page per decision, per rollout, per night that trained nothing and per business, for the person whose business it
is: in words first.

Every page is one self-contained HTML file that holds both languages and needs no script, so it reads the same in a
mail, in a folder and in the registry's sandboxed viewer. All words stand in `texts`, English and Chinese side by side.
"""

from evals.report.gate import Lineage, render_gate_report
from evals.report.history import INDEX, read_entries, render_index
from evals.report.night import render_night_report
from evals.report.rollout import keep_canary, render_rollout_report, with_canary

__all__ = [
    "INDEX",
    "Lineage",
    "keep_canary",
    "read_entries",
    "render_gate_report",
    "render_index",
    "render_night_report",
    "render_rollout_report",
    "with_canary",
]
