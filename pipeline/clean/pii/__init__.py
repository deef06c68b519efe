"""Personal data: where it stands in a text (detectors) and what stands there afterwards (placeholders).

A detector takes texts and gives, for each, spans in order that don't overlap. `make_detector` gives the real one,
which needs model files and seconds to load; `PatternDetector` is the honest fake: patterns only, few names. Both apply
the `Rules` of a business: what is its own data, what is personal data with it alone.
"""

from pipeline.clean.pii.patterns import PatternDetector
from pipeline.clean.pii.placeholders import Texts, find_all, scrub_conversation
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import PiiDetector, Span, make_detector

__all__ = [
    "PatternDetector",
    "PiiDetector",
    "Rules",
    "Span",
    "Texts",
    "find_all",
    "make_detector",
    "scrub_conversation",
]
