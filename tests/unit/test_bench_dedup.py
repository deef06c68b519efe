"""What `make bench-dedup` compares with: the truth is counted rightly, and both contestants do the same job."""

from tests.benchmarks.dedup import plain
from tests.benchmarks.dedup.__main__ import keep_first
from tests.benchmarks.dedup.texts import make_texts

TEXTS = make_texts(160, seed=3)


def near(one: str, other: str) -> bool:
    a, b = plain.shingles(one), plain.shingles(other)
    return len(a & b) >= 0.8 * len(a | b)


def test_the_truth_is_every_near_pair_and_nothing_else() -> None:
    places = range(len(TEXTS))
    expected = {(a, b) for a in places for b in places if a < b and near(TEXTS[a], TEXTS[b])}
    assert plain.true_pairs(TEXTS) == expected
    assert len(expected) > 20


def test_what_is_kept_is_near_to_nothing_that_was_kept_before() -> None:
    kept: list[int] = []
    for place, text in enumerate(TEXTS):
        if not any(near(TEXTS[other], text) for other in kept):
            kept.append(place)
    assert keep_first(TEXTS) == kept
    assert len(set(plain.keep_first(TEXTS)) ^ set(kept)) <= len(TEXTS) // 5  # it neither verifies nor misses little


def test_texts_are_the_same_for_the_same_seed_and_half_chinese() -> None:
    assert make_texts(160, seed=3) == TEXTS
    assert make_texts(160, seed=4) != TEXTS
    assert 0.3 < sum(not text.isascii() for text in TEXTS) / len(TEXTS) < 0.7
