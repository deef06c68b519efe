"""Signatures are datasketch's, the search misses little and reports nothing that is not true."""

import json
import random
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.near.search import Bands, Neighbours
from pipeline.clean.near.shingles import shingle_hashes
from pipeline.clean.near.signatures import signatures
from pipeline.clean.text import fold_script

WORDS = ["thank", "you", "your", "to", "change", "that", "open", "the", "Order", "page", "7", "退款", "发票", "訂單"]
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=25).map(" ".join)


def shingles(text: str) -> set[str]:
    """Written apart from the code under test, for texts of words, Chinese and plain marks."""
    plain = fold_script(unicodedata.normalize("NFKC", text).casefold())
    units = re.findall(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff_]+", plain)
    return {" ".join(units[at : at + 3]) for at in range(max(1, len(units) - 2))}


def hash_of(shingle: bytes) -> int:
    """datasketch's `hashfunc`: the units of a shingle are again one shingle."""
    return int(shingle_hashes([shingle.decode()])[0][0])


def jaccard(one: str, other: str) -> float:
    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b)


def neighbours(texts: list[str], threshold: float = 0.8) -> Neighbours:
    rows = [(text,) for text in texts]
    bands = Bands.at(threshold)
    return Neighbours(rows, bands, bands.signatures(rows))


@given(
    st.lists(sentences | st.text(alphabet="ab 退款,。訂１", min_size=1), min_size=1, max_size=5),
    st.sampled_from([6, 64, 128]),
)
def test_signatures_are_those_of_datasketch(texts: list[str], permutations: int) -> None:
    texts = [text for text in texts if any(char.isalnum() for char in text)]
    for text, ours in zip(texts, signatures(texts, permutations), strict=True):
        theirs = MinHash(num_perm=permutations, hashfunc=hash_of)
        theirs.update_batch([shingle.encode() for shingle in sorted(shingles(text))])
        assert ours.tolist() == theirs.hashvalues.tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Invoice, please!", "ＩＮＶＯＩＣＥ please"),
        ("發票怎麼開？", "发票 怎么开"),
        ("re\u0301sume\u0301 ｶﾞｲﾄﾞ", "résumé ガイド"),
        ("zero\u200bwidth", "zerowidth"),
        ("\ud83d\ude00 ok", "😀 ok"),
    ],
)
def test_width_case_script_and_spacing_do_not_count(one: str, other: str) -> None:
    assert shingle_hashes([one])[0].tolist() == shingle_hashes([other])[0].tolist()


@given(st.lists(st.text(), max_size=6))
def test_any_text_has_a_shingle_and_is_hashed_as_if_alone(texts: list[str]) -> None:
    hashes, offsets = shingle_hashes(texts)
    assert offsets[0] == 0
    assert offsets[-1] == len(hashes)
    for text, start, end in zip(texts, offsets[:-1], offsets[1:], strict=True):
        assert start < end
        assert hashes[start:end].tolist() == shingle_hashes([text])[0].tolist()


def test_a_lone_surrogate_is_a_character_like_others() -> None:
    assert shingle_hashes(["a \ud83d b"])[0].tolist() == shingle_hashes(["a \ufffd b"])[0].tolist()


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
def test_bands_miss_few_at_every_threshold(threshold: float) -> None:
    bands = Bands.at(threshold)
    assert (1 - threshold**bands.values) ** bands.bands <= 0.003
    assert sum(bands.shares(4)) == bands.values
    assert bands.least <= threshold * bands.bands * bands.values


@settings(max_examples=40)
@given(st.lists(sentences, max_size=14), st.sampled_from([0.5, 0.8, 1.0]))
def test_every_reported_pair_is_true(texts: list[str], threshold: float) -> None:
    pairs = [(int(a), int(b)) for a, b in neighbours(texts, threshold).pairs()]
    assert pairs == sorted(set(pairs))
    assert all(a < b and jaccard(texts[a], texts[b]) >= threshold for a, b in pairs)
    assert {(a, b) for a in range(len(texts)) for b in range(a + 1, len(texts)) if texts[a] == texts[b]} <= set(pairs)


def mutated(text: str, chance: random.Random) -> str:
    cut = chance.randrange(len(text) * 7 // 10, len(text) + 1)
    return text[:cut] + chance.choice(["", "，谢谢您", " and so on"])


def test_few_pairs_are_missed(shared: Path) -> None:
    rows = json.loads((shared / "data/medical/huatuo_first600.json").read_text())[:150]
    chance = random.Random(5)
    texts = [
        text for row in rows for text in (row["output"], mutated(row["output"], chance), mutated(row["output"], chance))
    ]
    of_text = [set(shingle_hashes([text])[0].tolist()) for text in texts]
    places = ((a, b) for a in range(len(texts)) for b in range(a + 1, len(texts)))
    true = {(a, b) for a, b in places if len(of_text[a] & of_text[b]) >= 0.8 * len(of_text[a] | of_text[b])}
    found = {(int(a), int(b)) for a, b in neighbours(texts).pairs()}
    assert found <= true
    assert len(true) > 150
    assert len(found) >= 0.99 * len(true)


@settings(max_examples=40)
@given(st.lists(sentences, max_size=14), st.data())
def test_first_come_and_near_any_of_say_what_the_pairs_say(texts: list[str], data: st.DataObject) -> None:
    pairs = {(int(a), int(b)) for a, b in neighbours(texts).pairs()}
    kept: list[int] = []
    expected = []
    for place in range(len(texts)):
        near = [other for other in kept if (other, place) in pairs]
        expected.append(near[0] if near else -1)
        kept += [] if near else [place]
    assert neighbours(texts).first_come(np.arange(len(texts) + 1)).tolist() == expected
    first = data.draw(st.integers(0, len(texts)))
    any_of = [any((a, b) in pairs for a in range(first)) for b in range(first, len(texts))]
    assert neighbours(texts).near_any_of(first).tolist() == any_of


def test_rows_are_near_only_when_each_text_is_and_only_within_a_group() -> None:
    long = "Thank you for your message. To change that, open the order page and follow the steps there."
    rows = [(long, "Where is my parcel?"), (long, "Refund, please"), (long + " Bye", "where is my parcel")]
    bands = Bands.at(0.8)
    signed = bands.signatures(rows)
    assert Neighbours(rows, bands, signed).pairs().tolist() == [[0, 2]]
    assert Neighbours(rows, bands, signed, np.array([1, 1, 2])).pairs().tolist() == []
