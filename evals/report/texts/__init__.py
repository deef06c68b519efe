"""Every word of the reports, English and Chinese side by side, so that neither is forgotten: a file for each page."""

from evals.report.texts.answers import ANSWERS
from evals.report.texts.common import COMMON
from evals.report.texts.decision import DECISION
from evals.report.texts.history import HISTORY
from evals.report.texts.judge import JUDGE
from evals.report.texts.names import DROPS, METRIC_NAMES, PII, SIGNALS
from evals.report.texts.night import NIGHT
from evals.report.texts.rollout import ROLLOUT
from evals.report.texts.text import Text

TEXTS: dict[str, Text] = COMMON | ANSWERS | DECISION | JUDGE | ROLLOUT | HISTORY | NIGHT

__all__ = ["DROPS", "METRIC_NAMES", "PII", "SIGNALS", "TEXTS", "Text"]
