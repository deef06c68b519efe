"""One promise and what was measured of it."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of ours beside a peer's."""

    metric: str
    ours: float
    peer: float | None
    """The peer that `metric` names; None where ours stands alone."""
    ratio: float | None
    """Above 1 is what `goal` speaks of: "at most" is ours / peer, "at least" is how many times better ours is."""
    goal: str
    met: bool | None
    """None where nothing was promised."""
    contended: bool
    """Others were busy while it was measured."""

    def as_dict(self) -> dict[str, object]:
        """For the JSON file, rounded as far as the figures carry."""
        rounded = {name: _rounded(getattr(self, name)) for name in ("ours", "peer", "ratio")}
        return asdict(self) | rounded


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
