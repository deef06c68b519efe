"""The power curve as SVG: how often a candidate is found better, by how much better it is."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 150, 24, 48
_COLOURS = ("#b45309", "#0f766e", "#4338ca")

Curve = Sequence[tuple[float, float]]
"""(true difference, share found), in the order of the differences."""
_Place = Callable[[float, float], tuple[float, float]]


def power_svg(curves: Mapping[str, Curve], goal: float) -> str:
    """One line a curve, and the share that was promised as a dashed one.

    Args:
        curves: by what each is called.
        goal: share in [0, 1].
    """
    most = max(x for curve in curves.values() for x, _ in curve)

    def at(x: float, y: float) -> tuple[float, float]:
        across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return round(_LEFT + across * x / most, 1), round(_TOP + down * (1 - y), 1)

    parts = [_grid(at, most, goal)]
    for curve, colour in zip(curves.values(), _COLOURS, strict=False):
        points = [at(x, y) for x, y in curve]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in points]
    # Names stand in the order of the curves, not at their ends, which meet.
    for row, (name, colour) in enumerate(zip(curves, _COLOURS, strict=False)):
        y = _TOP + 20 + 22 * row
        parts.append(f'<rect x="{_WIDTH - _RIGHT + 16}" y="{y - 9}" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 38}" y="{y}">{escape(name)}</text>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="13" fill="#374151">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _grid(at: _Place, most: float, goal: float) -> str:
    lines = []
    for step in range(6):
        share = step / 5
        (left, y), (right, _) = at(0, share), at(most, share)
        lines.append(f'<path d="M{left} {y}H{right}" stroke="#e5e7eb"/>')
        lines.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
        x, bottom = at(most * share, 0)
        lines.append(f'<text x="{x}" y="{bottom + 20}" text-anchor="middle">+{100 * most * share:.3g}</text>')
    (left, y), (right, bottom) = at(0, goal), at(most, 0)
    lines.append(f'<path d="M{left} {y}H{right}" stroke="#6b7280" stroke-dasharray="5 4"/>')
    middle = (left + right) / 2
    lines.append(f'<text x="{middle}" y="{bottom + 40}" text-anchor="middle">truly better by, in points of 100</text>')
    lines.append(f'<text x="{left - 44}" y="{_TOP - 8}">nights that found it</text>')
    return "\n".join(lines)
