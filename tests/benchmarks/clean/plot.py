"""Cost against size, as a small SVG with logarithmic axes: a line of slope one is linear."""

from collections.abc import Sequence
from math import log10

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 320, 64, 44, 24, 16


def plot(sizes: Sequence[int], seconds: Sequence[float], title: str) -> str:
    """Points with the straight line through the first one at which cost is linear."""
    low_x, high_x = log10(sizes[0]) - 0.1, log10(sizes[-1]) + 0.1
    low_y = log10(min(seconds)) - 0.3
    high_y = max(log10(max(seconds)), log10(seconds[0]) + log10(sizes[-1] / sizes[0])) + 0.2

    def x(size: float) -> float:
        return round(_LEFT + (log10(size) - low_x) / (high_x - low_x) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (log10(value) - low_y) / (high_y - low_y) * (_HEIGHT - _BOTTOM - _TOP), 1)

    points = " ".join(f"{x(size)},{y(value)}" for size, value in zip(sizes, seconds, strict=True))
    linear = seconds[0] * sizes[-1] / sizes[0]
    marks = [
        f'<circle cx="{x(size)}" cy="{y(value)}" r="4" fill="#0b6"/>'
        f'<text x="{x(size)}" y="{y(value) - 10}" text-anchor="middle">{value:,.0f} s</text>'
        f'<text x="{x(size)}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{size:,}</text>'
        for size, value in zip(sizes, seconds, strict=True)
    ]
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
            ' font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="16" font-weight="bold">{title}</text>',
            f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#888"/>',
            f'<path d="M{x(sizes[0])} {y(seconds[0])}L{x(sizes[-1])} {y(linear)}" stroke="#bbb"'
            ' stroke-dasharray="5 4"/>',
            f'<text x="{x(sizes[-1]) - 6}" y="{y(linear) + 18}" text-anchor="end" fill="#888">dashed: linear</text>',
            f'<polyline points="{points}" fill="none" stroke="#0b6" stroke-width="2"/>',
            *marks,
            f'<text x="{(_WIDTH + _LEFT) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">interactions</text>',
            "</svg>",
        )
    )
