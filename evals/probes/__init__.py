"""Fixed questions of tuneloop's own for both sides: does a candidate give in to users, has it forgotten things?"""

from evals.probes.ask import ask_probes

__all__ = ["ask_probes"]
