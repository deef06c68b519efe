"""One page per decision, for the person whose business it is: in words first, in numbers after.

Every page is one self-contained HTML file without scripts, so it reads the same in a mail, in a folder and in the
registry's sandboxed viewer. All words stand in `texts`, English and Chinese side by side.
"""

from evals.report.gate import render_gate_report
from evals.report.rollout import render_rollout_report

__all__ = ["render_gate_report", "render_rollout_report"]
