"""All windows of a run, and the figures that are drawn from them. Pure."""

from collections.abc import Sequence
from operator import attrgetter

from tests.benchmarks.figures import middle, paired_difference, paired_ratio
from tests.benchmarks.gateway.cases import Case
from tests.benchmarks.gateway.window import Window


class Results:
    """Medians over rounds. Rounds in which somebody else was busy count only where there are no others."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = tuple(windows)
        self._by_place = {(window.case, window.contestant, window.round): window for window in windows}

    def median(self, case: Case, contestant: str, what: str) -> float | None:
        """Median of a figure (a property of `Window`); None when it was not measured."""
        return middle(self._values(case, contestant, what, self._rounds(case, contestant)))

    def ratio(self, case: Case, over: str, under: str, what: str) -> float | None:
        """Median of the ratios of the rounds that both took part in."""
        rounds = self._rounds(case, over, under)
        return paired_ratio(self._values(case, over, what, rounds), self._values(case, under, what, rounds))

    def added(self, case: Case, contestant: str, base: str, what: str) -> float | None:
        """Median of the differences of the rounds that both took part in."""
        rounds = self._rounds(case, contestant, base)
        return paired_difference(self._values(case, contestant, what, rounds), self._values(case, base, what, rounds))

    def contended(self, case: Case, *contestants: str) -> bool:
        """Whether the figures of these contestants come from rounds in which others were busy."""
        rounds = self._rounds(case, *contestants)
        return any(self._by_place[case.name, name, number].contended for name in contestants for number in rounds)

    def _rounds(self, case: Case, *contestants: str) -> list[int]:
        numbers = sorted({window.round for window in self.windows if window.case == case.name})
        found: dict[int, list[Window]] = {}
        for number in numbers:
            places = [self._by_place.get((case.name, name, number)) for name in contestants]
            windows = [window for window in places if window is not None and not window.wrong]
            if len(windows) == len(contestants):
                found[number] = windows
        clean = [number for number, windows in found.items() if not any(window.contended for window in windows)]
        return clean or list(found)

    def _values(self, case: Case, contestant: str, what: str, rounds: Sequence[int]) -> list[float | None]:
        figure = attrgetter(what)
        return [figure(self._by_place[case.name, contestant, number]) for number in rounds]
