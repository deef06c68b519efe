"""Everyday words of customer service, in English and Chinese, that benchmarks make texts of."""

from pathlib import Path

ENGLISH, CHINESE = (
    (Path(__file__).parent / f"{language}.txt").read_text(encoding="utf-8").split()
    for language in ("english", "chinese")
)
