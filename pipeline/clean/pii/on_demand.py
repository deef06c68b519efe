"""The real detector, loaded by the process that first asks it: it can be sent to other processes, and costs nothing
where it is not needed."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import PiiDetector, Span, make_detector


class OnDemandDetector:
    """`make_detector(language, rules)` at the first call in each process."""

    def __init__(self, language: Literal["en", "zh"], rules: Rules) -> None:
        self._language = language
        self._rules = rules

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        return self._loaded(texts)

    def __reduce__(self) -> tuple[Any, ...]:
        return OnDemandDetector, (self._language, self._rules)

    @cached_property
    def _loaded(self) -> PiiDetector:
        return make_detector(self._language, self._rules)
