"""Hiding the usage-only chunk, and nothing else."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.gateway.sse import UsageFilter
from tests.gateway_stub import USAGE_CHUNK, delta

EVENTS = st.sampled_from(
    [
        json.dumps(delta("你好 🌟"), ensure_ascii=False),
        json.dumps(delta('"choices":[],"usage":{}')),
        json.dumps(delta("x") | {"usage": None}),
        json.dumps(delta("x") | {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        json.dumps(USAGE_CHUNK),
        json.dumps(USAGE_CHUNK, separators=(",", ":")),
        json.dumps(USAGE_CHUNK | {"usage": None}),
        '{"error":{"message":"bad"}}',
        '{"choices":[],"usage"',
        "[DONE]",
    ]
)
LINES = st.one_of(
    st.tuples(st.just("data: "), EVENTS),
    st.tuples(st.just("data:"), EVENTS),
    st.tuples(st.just(": "), st.sampled_from(["ping", "OPENROUTER PROCESSING", ""])),
    st.tuples(st.just("event: "), st.just("message")),
)


def is_usage(text: str) -> bool:
    return text in (json.dumps(USAGE_CHUNK), json.dumps(USAGE_CHUNK, separators=(",", ":")))


def feed(pieces: list[bytes]) -> bytes:
    usage_filter = UsageFilter()
    return b"".join([*(usage_filter.feed(piece) for piece in pieces), usage_filter.rest()])


def cut_up(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]), st.lists(st.integers(0, 5000), max_size=8))
def test_however_it_is_cut_all_passes_but_the_usage_chunk(
    lines: list[tuple[str, str]], end: str, cuts: list[int]
) -> None:
    whole = "".join(name + text + end * 2 for name, text in lines).encode()
    kept = "".join(name + text + end * 2 for name, text in lines if not is_usage(text)).encode()
    assert feed(cut_up(whole, cuts)) == kept


@given(st.binary(max_size=300), st.lists(st.integers(0, 5000), max_size=8))
def test_bytes_that_are_no_event_stream_pass_untouched(data: bytes, cuts: list[int]) -> None:
    assert feed(cut_up(data, cuts)) == data


@given(st.text(alphabet='\r\n:da {}[]"usagechoices,1', max_size=80), st.lists(st.integers(0, 500), max_size=8))
def test_odd_line_ends_lose_nothing(text: str, cuts: list[int]) -> None:
    assert feed(cut_up(text.encode(), cuts)) == text.encode()


def test_the_start_of_a_cut_event_goes_out_before_its_end_comes() -> None:
    data = b"data: " + json.dumps(delta("你好")).encode()
    assert UsageFilter().feed(data[: len(data) - 30]) == data[: len(data) - 30]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_usage_and_done_in_one_piece(end: bytes) -> None:
    usage = b"data: " + json.dumps(USAGE_CHUNK).encode() + end * 2
    assert feed([usage + b"data: [DONE]" + end * 2]) == b"data: [DONE]" + end * 2
