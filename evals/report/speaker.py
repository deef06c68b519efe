"""How texts, numbers and dates are said in one language."""

import math
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from evals.metrics import Metric, Unit
from evals.report.texts import METRIC_NAMES, PII, TEXTS, Text

Lang = Literal["en", "zh"]


class Count(int):
    """A number that knows its noun's plural: `f"{Count(1204):answer/answers}"` is `1,204 answers`."""

    def __format__(self, spec: str) -> str:
        number = f"{int(self):,}"
        if "/" not in spec:
            return number
        one, many = spec.split("/", 1)
        return f"{number} {one if int(self) == 1 else many}"


class Speaker:
    """Says things in one language."""

    def __init__(self, lang: Lang, zone: ZoneInfo) -> None:
        self.lang = lang
        self._zone = zone

    def __call__(self, key: str, **values: object) -> str:
        counted = {
            name: Count(value) if isinstance(value, int) and not isinstance(value, bool) else value
            for name, value in values.items()
        }
        return self.pick(TEXTS[key]).format(**counted)

    def pick(self, text: Text | Metric) -> str:
        return text.en if self.lang == "en" else text.zh

    def metric(self, name: str) -> str:
        """A metric as a person calls it."""
        if name.startswith("recent:"):
            return self("recent_metric", metric=self.metric(name.removeprefix("recent:")))
        return self.pick(METRIC_NAMES[name]) if name in METRIC_NAMES else name.replace("_", " ")

    def direction(self, name: str) -> int:
        """1 when more is better, else -1: of what only a rollout's records know, more is worse."""
        metric = METRIC_NAMES.get(name.removeprefix("recent:"))
        return -1 if metric is None else metric.direction

    def personal_data(self, entity: str) -> str:
        """A kind of personal data as a person calls it."""
        return self.pick(PII[entity]) if entity in PII else entity.replace("_", " ").lower()

    def listed(self, parts: list[str]) -> str:
        return (", " if self.lang == "en" else "、").join(parts)

    def percent(self, share: float) -> str:
        """`0%`, `2.5%`, `92%`: a decimal only where it tells something."""
        value = 100 * share
        return (
            f"{value:.0f}%" if value == 0 or abs(value) >= 10 or abs(value - round(value)) < 0.05 else f"{value:.1f}%"
        )

    def level(self, metric: str, value: float) -> str:
        """A mean score in words."""
        match _unit(metric):
            case "share":
                return self.percent(value)
            case "score":
                return f"{100 * value:.0f} / 100"
            case "log_ratio":
                return f"×{math.exp(value):.1f}"
            case "nats":
                return f"{value:+.2f}"

    def difference(self, metric: str, value: float, *, signed: bool = True) -> str:
        """A difference of two means in words, such as `+31 points`."""
        number = self.bare(metric, value, signed=signed)
        unit = _unit(metric)
        if unit not in ("share", "score"):
            return number
        if self.lang == "zh":
            return number + (" 个百分点" if unit == "share" else " 分")
        return number + (" point" if number.lstrip("+−") == "1" else " points")

    def bare(self, metric: str, value: float, *, signed: bool = True) -> str:
        """The number of a difference without its unit."""
        unit = _unit(metric)
        if unit == "log_ratio":
            return f"×{math.exp(value):.2g}"
        if unit in ("share", "score"):
            value, digits = 100 * value, 0 if abs(value) >= 0.1 else 1
        else:
            digits = 2
        number = f"{round(value, digits):.{digits}f}"
        if float(number) == 0:
            return "0"
        number = number.removesuffix(".0").replace("-", "−")
        return f"+{number}" if signed and value > 0 else number

    def date(self, at: datetime, *, time: bool = True) -> str:
        local = at.astimezone(self._zone)
        if self.lang == "zh":
            return f"{local.year}年{local.month}月{local.day}日" + (f" {local:%H:%M}" if time else "")
        return f"{local.day} {local:%B %Y}" + (f", {local:%H:%M}" if time else "")


def _unit(metric: str) -> Unit:
    """A metric that only the rollout's records know is told as a plain number."""
    name = metric.removeprefix("recent:")
    return METRIC_NAMES[name].unit if name in METRIC_NAMES else "nats"
