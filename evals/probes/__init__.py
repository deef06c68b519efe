"""Fixed questions of tuneloop's own for both sides: does a candidate give in to users, has it forgotten things?"""

from evals.probes.ask import Probed, ask_probes
from evals.probes.questions import probe_questions

__all__ = ["Probed", "ask_probes", "probe_questions"]
