"""A message of a megabyte is cleaned and compared; what grows faster than its length runs into the timeout."""

import base64
import random

import pytest

from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.pii import PatternDetector
from pipeline.clean.steps import clean_records
from pipeline.dataset.examples import build_examples
from tests.builders import a_rated, a_signal, an_interaction

LONG = {
    "chinese": "患者反复咳嗽两周，夜间加重，建议先做检查再决定用药。" * 13_000,
    "without spaces": base64.b64encode(random.Random(1).randbytes(750_000)).decode(),
    "numbers": "1-" * 500_000,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_megabyte_is_cleaned_like_any_text(text: str) -> None:
    assert len(text.encode()) >= 1_000_000
    asked = an_interaction(prompt=f"{text} 电话13912345678", answer="So.")
    again = an_interaction("i2", prompt=f"{text} 电话13912345678", answer="So.", session="s2")
    records, dropped = clean_records(
        [a_rated(one, a_signal("edit", "So, then.")) for one in (asked, again)], PatternDetector(), frozenset()
    )
    assert not dropped
    assert str(records[0].messages[0]["content"]).endswith(" 电话<PHONE_1>")
    unique, duplicates = drop_duplicates(records, 0.8)
    assert (len(unique), len(duplicates)) == (1, 1)
    examples, _ = build_examples(unique, 1)
    assert examples
