"""An engine that serves something else than its name says is found out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import EngineUnavailable, ServingError
from pipeline.records import Fingerprint
from pipeline.serving.proof import FAR_NATS, TOLERANCE_NATS, choose_probe_texts, fingerprint, prove
from pipeline.serving.scripted import ScriptedEngine
from pipeline.serving.vllm import VllmServer
from tests.adapter_files import adapter_tensors, write_adapter

TEXTS = tuple(" ".join(f"{text}{word}" for word in range(40)) for text in "abc")
NAME = "support-v1-00000001"


class Pair:
    """An engine for the base and one for adapters, with one adapter on it and its fingerprint."""

    def __init__(self, base: ScriptedEngine, adapters: ScriptedEngine, folder: Path) -> None:
        self.folder = folder
        self.engine = adapters
        self.base = VllmServer(base.url, "base")
        self.adapters = VllmServer(adapters.url, "base", timeout_s=5)
        self.one = write_adapter(folder / "one", adapter_tensors(seed=1))
        self.two = write_adapter(folder / "two", adapter_tensors(seed=2))
        self.adapters.load(NAME, self.one)
        self.fingerprint = fingerprint(self.base, self.adapters, "base", NAME, TEXTS)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ScriptedEngine() as base, ScriptedEngine() as adapters:
        yield Pair(base, adapters, tmp_path)


def test_the_adapter_itself_is_proven(pair: Pair) -> None:
    prove(pair.adapters, NAME, pair.fingerprint)


def test_the_same_adapter_is_proven_after_a_restart(pair: Pair) -> None:
    pair.engine.restart()
    with pytest.raises(ServingError, match="does not exist"):
        prove(pair.adapters, NAME, pair.fingerprint)
    pair.adapters.load(NAME, pair.one)
    prove(pair.adapters, NAME, pair.fingerprint)


def test_the_base_under_the_adapters_name_is_refused(pair: Pair) -> None:
    pair.engine.faults.serve_base = True
    with pytest.raises(ServingError, match=f"does not serve '{NAME}'.*but the base model"):
        prove(pair.adapters, NAME, pair.fingerprint)


def test_another_adapter_under_the_name_is_refused(pair: Pair) -> None:
    pair.adapters.unload(NAME)
    pair.adapters.load(NAME, pair.two)
    with pytest.raises(ServingError, match="but another adapter"):
        prove(pair.adapters, NAME, pair.fingerprint)


def test_an_engine_that_is_down_may_be_asked_again(pair: Pair) -> None:
    pair.engine.stop()
    with pytest.raises(EngineUnavailable):
        prove(pair.adapters, NAME, pair.fingerprint)


def test_an_adapter_that_moves_nothing_cannot_be_proven(pair: Pair) -> None:
    """Else an engine that serves the base would be taken for one that serves it."""
    weak = pair.fingerprint.model_copy(
        update={"adapter_logprobs": tuple(value + 0.9 * FAR_NATS for value in pair.fingerprint.base_logprobs)}
    )
    pair.engine.faults.serve_base = True
    with pytest.raises(ServingError, match="cannot be proven"):
        prove(pair.adapters, NAME, weak)


@pytest.mark.parametrize(("off", "proven"), [(0.9 * TOLERANCE_NATS, True), (3 * TOLERANCE_NATS, False)])
def test_rounding_is_forgiven_and_no_more(pair: Pair, off: float, proven: bool) -> None:
    shifted = Fingerprint(
        texts=TEXTS,
        base_logprobs=pair.fingerprint.base_logprobs,
        adapter_logprobs=tuple(
            value + off * (-1) ** place for place, value in enumerate(pair.fingerprint.adapter_logprobs)
        ),
    )
    if proven:
        prove(pair.adapters, NAME, shifted)
    else:
        with pytest.raises(ServingError, match="another adapter"):
            prove(pair.adapters, NAME, shifted)


def test_the_texts_that_move_most_are_chosen(pair: Pair) -> None:
    candidates = ("one", "", TEXTS[0], TEXTS[0], "two words", TEXTS[1])
    chosen = choose_probe_texts(candidates, pair.base, pair.adapters, NAME, "base", 2)
    every = fingerprint(pair.base, pair.adapters, "base", NAME, ("one", TEXTS[0], "two words", TEXTS[1]))
    moves = [abs(a - b) for a, b in zip(every.adapter_logprobs, every.base_logprobs, strict=True)]
    ranked = [text for _, text in sorted(zip(moves, every.texts, strict=True), reverse=True)]
    assert chosen == tuple(ranked[:2])


def test_long_texts_are_cut_to_their_end_and_empty_ones_are_none(pair: Pair) -> None:
    (text,) = choose_probe_texts(("你好 " * 5000 + "the end \ud800",), pair.base, pair.adapters, NAME, "base", 4)
    assert len(text.encode()) <= 512
    assert text.endswith("the end")
    with pytest.raises(ServingError, match="all 2 candidates are empty"):
        choose_probe_texts((" ", ""), pair.base, pair.adapters, NAME, "base", 4)
