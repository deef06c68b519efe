"""The yardstick of `make bench-pii`: marks are read as they are written, and counted as it is said."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.clean.pii import Span
from pipeline.clean.pii.recognisers import RECOGNISERS
from tests.benchmarks.pii.corpus import Marked, chinese, parse_marked
from tests.benchmarks.pii.glued import glued
from tests.benchmarks.pii.scoring import Count, by_kind, missing, of_any_kind

words = st.text("王小明ab1，。 \n", max_size=8)
marks = st.tuples(st.booleans(), st.sampled_from(["PERSON", "ID_CARD"]), st.text("王b1", min_size=1, max_size=5))


@given(st.lists(st.tuples(words, marks), max_size=5), words)
def test_marks_are_read_as_they_are_written(parts: list[tuple[str, tuple[bool, str, str]]], end: str) -> None:
    source = (
        "".join(f"{word}[{'~' if doubtful else ''}{kind}:{value}]" for word, (doubtful, kind, value) in parts) + end
    )
    marked = parse_marked(source)
    assert marked.text == "".join(word + value for word, (_, _, value) in parts) + end
    spans = sorted((*marked.gold, *marked.optional), key=lambda span: span.start)
    assert [(s.entity, marked.text[s.start : s.end]) for s in spans] == [(kind, value) for _, (_, kind, value) in parts]
    assert len(marked.optional) == sum(doubtful for _, (doubtful, _, _) in parts)


def test_our_sentences_are_many_and_marked_with_kinds_that_are_looked_for() -> None:
    corpus = chinese()
    kinds = {recogniser.entity for recogniser in RECOGNISERS}
    assert len(corpus) >= 600
    assert len({marked.text for marked in corpus}) == len(corpus)
    assert {span.entity for marked in corpus for span in marked.gold} <= kinds
    assert sum(not marked.gold for marked in corpus) > 200  # what must stay


def test_a_span_counts_by_kind_overlap_and_doubt() -> None:
    marked = Marked("0123456789abcdef", (Span(0, 4, "PHONE"), Span(6, 10, "PERSON")), (Span(12, 14, "PERSON"),))
    found = [Span(0, 8, "PHONE"), Span(6, 8, "PERSON"), Span(12, 16, "PERSON"), Span(10, 11, "EMAIL")]
    counts = by_kind([marked], [found], ["PHONE", "PERSON", "EMAIL"])
    assert counts["PHONE"] == Count(gold=1, found=1, given=1, right=1)
    assert counts["PERSON"] == Count(gold=1, found=1, given=1, right=1)
    assert counts["EMAIL"] == Count(gold=0, found=0, given=1, right=0)
    assert by_kind([marked], [[Span(0, 9, "PHONE")]], ["PHONE"])["PHONE"].found == 0
    assert set(missing([marked], [[Span(0, 4, "PHONE")]])) == {f"missed PERSON '6789' in {marked.text!r}"}
    assert of_any_kind([marked], [[Span(0, 4, "X")]]) == Count(gold=2, found=1, given=1, right=1)
    assert of_any_kind([marked], [[Span(12, 14, "X")]], everything=True).found == 1


def test_f2_weighs_recall_twice() -> None:
    assert Count(gold=10, found=5, given=5, right=5).f2 == 5 * 1.0 * 0.5 / (4 * 1.0 + 0.5)
    assert Count().f2 == 0


def test_glued_values_stand_where_they_are_marked() -> None:
    corpus = list(glued())
    assert len(corpus) > 400
    assert all(marked.text[s.start : s.end] for marked in corpus for s in marked.gold)
    assert any("１３９" in marked.text for marked in corpus)
