"""Chunks and processes change nothing, and a process that dies is said to have died."""

import os
import pickle
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.clean.scrubbing as scrubbing
from pipeline.clean.pii import PatternDetector, Rules, Span
from pipeline.clean.pii.on_demand import OnDemandDetector
from pipeline.clean.pii_config import PiiConfig
from pipeline.clean.steps import clean_records
from pipeline.errors import Transient
from pipeline.records import RatedInteraction
from tests.builders import NOON, a_rated, a_signal, an_interaction


class DyingDetector:
    """Takes its process with it."""

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        os._exit(9)


def rated(count: int, sessions: int) -> list[RatedInteraction]:
    made = []
    for number in range(count):
        said = {"prompt": f"我是139123456{number % 7:02}", "session": f"s{number % sessions}"}
        at = NOON + timedelta(minutes=number)
        made.append(a_rated(an_interaction(f"i{number:03}", started_at=at, **said), a_signal()))
    return made


def clean(records: list[RatedInteraction], **options: Any) -> object:
    return clean_records(records, PatternDetector(), frozenset(), Rules(), b"key", **options)


@settings(max_examples=20)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 12))
def test_where_chunks_are_cut_changes_nothing(count: int, sessions: int, chunk: int) -> None:
    records = rated(count, sessions)
    whole = clean(records)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scrubbing, "_CHUNK", chunk)
        assert clean(records) == whole


def test_several_processes_come_to_what_one_does_and_tell_of_their_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "_CHUNK", 5)
    told: list[tuple[int, int]] = []
    records = rated(30, 4)
    assert clean(records, processes=2, tell=lambda done, of: told.append((done, of))) == clean(records)
    assert told[-1] == (30, 30)


def test_a_process_that_dies_fails_the_step_and_no_record_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "_CHUNK", 5)
    with pytest.raises(scrubbing.WorkersLost, match="one of 2 processes died") as caught:
        clean_records(rated(30, 4), DyingDetector(), frozenset(), processes=2)
    assert isinstance(caught.value, Transient)


def test_the_real_detector_is_sent_with_its_rules_and_without_its_models() -> None:
    rules = Rules(PiiConfig(allow=("0571-88886666",), allow_patterns=("400[0-9]{7}",)), "zh")
    sent = pickle.dumps(OnDemandDetector("zh", rules))
    assert len(sent) < 20_000
    assert isinstance(pickle.loads(sent), OnDemandDetector)
