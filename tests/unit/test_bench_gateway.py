"""The arithmetic and the parsers behind `make bench-gateway`; nothing is started."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.document import put_section
from tests.benchmarks.figures import middle, paired_difference, paired_ratio, percentile
from tests.benchmarks.gateway.answers import STREAM_EVENTS, completion, stream
from tests.benchmarks.gateway.cases import DIRECT, ENVOY, JSON, LATENCY, LITELLM, MEMORY, TUNELOOP
from tests.benchmarks.gateway.client import ClientConnection
from tests.benchmarks.gateway.drive import Seen
from tests.benchmarks.gateway.goals import rows
from tests.benchmarks.gateway.job import Job, Outcome
from tests.benchmarks.gateway.proc import parse_cpu_ticks, parse_schedstat, parse_status, usage
from tests.benchmarks.gateway.requests import DISTINCT, build_requests
from tests.benchmarks.gateway.results import Results
from tests.benchmarks.gateway.stub import request_body
from tests.benchmarks.gateway.window import Window
from tests.benchmarks.machine import parse_model
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import number

STREAM = b"".join(stream())


class FakeTransport:
    """Takes what a connection sends."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data


def answered_by(*pieces: bytes) -> list[ClientConnection]:
    """A connection that sent a request and got these bytes; listed as often as it reported an answer."""
    answered: list[ClientConnection] = []
    connection = ClientConnection(answered.append, lambda _: None)
    connection.connection_made(FakeTransport())  # type: ignore[arg-type]
    connection.send(b"request", 1)
    for piece in pieces:
        connection.data_received(piece)
    return answered


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % len(data) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges) if start < stop]


def outcome(**given_fields: Any) -> Outcome:
    fields: dict[str, Any] = dict.fromkeys(Outcome.__slots__, 0)
    fields |= {"seconds": 2.0, "answers": 100, "busy_ns": 0}
    return Outcome(**(fields | given_fields))


def window(contestant: str, case: str, number_of_round: int = 0, *, others: float = 0.0, **fields: Any) -> Window:
    return Window(contestant, case, number_of_round, outcome(**fields), others)


@given(st.lists(st.integers(0, 10**9), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_a_value_that_its_share_does_not_exceed(values: list[int], share: float) -> None:
    values.sort()
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) < share * len(values) + 1e-6


def test_percentiles_of_few_values() -> None:
    assert percentile([], 0.99) == 0.0
    assert percentile([7], 0.5) == 7
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile(list(range(1, 101)), 0.07) == 7


def test_a_slow_round_falls_out_of_paired_figures() -> None:
    ours, peer = [10.0, 30.0, 11.0], [20.0, 60.0, 22.0]
    assert paired_ratio(ours, peer) == pytest.approx(0.5)
    assert paired_difference(peer, ours) == pytest.approx(11.0)


def test_what_was_not_measured_counts_nowhere() -> None:
    assert middle([None, 3.0, None]) == 3.0
    assert middle([]) is None
    assert paired_ratio([1.0, None], [None, 2.0]) is None
    assert paired_ratio([1.0, 4.0], [0.0, 2.0]) == 2.0
    assert paired_difference([None], [1.0]) is None


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.integers(0, 2**31))
def test_schedstat_gives_the_time_on_the_cpu(run: int, waited: int, slices: int) -> None:
    assert parse_schedstat(f"{run} {waited} {slices}\n") == run


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Za-z]{2,11}", fullmatch=True), st.integers(0, 2**40)))
def test_status_gives_sizes_and_nothing_else(sizes: dict[str, int]) -> None:
    lines = [
        "Name:\tx",
        "Pid:\t12",
        "State:\tS (sleeping)",
        *(f"{name}:\t{size:>8} kB" for name, size in sizes.items()),
    ]
    assert parse_status("\n".join(lines)) == sizes


def test_busy_ticks_leave_idle_and_guest_out() -> None:
    assert parse_cpu_ticks("cpu  100 20 30 4000 500 6 7 8 9 10") == 100 + 20 + 30 + 6 + 7 + 8


def test_usage_sums_threads_and_processes_and_forgives_ended_ones(tmp_path: Path) -> None:
    for pid, tasks in ((11, (11, 12)), (13, (13,))):
        for task in tasks:
            (tmp_path / str(pid) / "task" / str(task)).mkdir(parents=True)
            (tmp_path / str(pid) / "task" / str(task) / "schedstat").write_text(f"{task} 0 1")
        (tmp_path / str(pid) / "status").write_text("VmHWM:\t 200 kB\nVmRSS:\t 100 kB\n")
    found = usage((11, 13, 99), tmp_path)
    assert (found.cpu_ns, found.rss_kb, found.peak_kb) == (11 + 12 + 13, 200, 400)


def test_the_cpu_model_is_found_or_named_by_its_kind() -> None:
    assert parse_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n") == "Some CPU @ 2 GHz"
    assert parse_model("")


@given(st.lists(st.integers(0, len(STREAM) - 1), max_size=12))
def test_a_stream_is_counted_alike_however_it_is_cut(places: list[int]) -> None:
    (connection,) = answered_by(*cut(STREAM, places))
    assert connection.ok
    assert connection.done
    assert connection.events == STREAM_EVENTS
    assert connection.first_ns <= connection.ended_ns


@given(st.lists(st.integers(0, len(completion()) - 1), max_size=6))
def test_a_completion_ends_once_however_it_is_cut(places: list[int]) -> None:
    (connection,) = answered_by(*cut(completion(), places))
    assert connection.ok
    assert not connection.busy


def test_a_stream_without_its_end_is_no_answer_and_one_without_done_is_broken() -> None:
    assert answered_by(STREAM[:-5]) == []
    (connection,) = answered_by(STREAM.replace(b"[DONE]", b"[GONE]"))
    seen = Seen(streams=True)
    seen.open_window()
    seen.took(connection, by_intended=False)
    assert (seen.answers, seen.broken, seen.errors) == (0, 1, 0)


def test_an_answer_with_another_status_is_an_error() -> None:
    (connection,) = answered_by(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
    seen = Seen(streams=False)
    seen.open_window()
    seen.took(connection, by_intended=False)
    assert (seen.answers, seen.errors, seen.whole_ns) == (0, 1, [])


@given(st.integers(0, 2000), st.booleans())
def test_the_stub_waits_for_the_whole_request(place: int, chunked: bool) -> None:
    body = b'{"model": "m", "stream": true}'
    if chunked:
        request = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    place %= len(request)
    assert request_body(request[:place]) is None
    whole = request_body(request)
    assert whole is not None
    assert body in whole


def test_requests_are_distinct_and_the_same_every_time() -> None:
    made = build_requests("h", ("a", "b"), stream=True, pace_us=10)
    assert len(set(made)) == DISTINCT
    assert made == build_requests("h", ("a", "b"), stream=True, pace_us=10)
    assert all(request_body(request) for request in made)


def test_jobs_and_outcomes_survive_the_way_between_processes() -> None:
    job = Job(1, ("k",), True, 5, 2, 3.5, 0.1, 0.2, (4, 5), (6,))
    assert Job.from_json(job.to_json()) == job
    assert Outcome.from_json(outcome(p50=1.5).to_json()) == outcome(p50=1.5)


def test_ratios_are_met_up_to_their_goal() -> None:
    def found(ours_ns: int) -> dict[str, Row]:
        windows = [
            window(TUNELOOP, JSON.name, cpu_ns=ours_ns),
            window(ENVOY, JSON.name, cpu_ns=100_000_000),
            window(LITELLM, JSON.name, cpu_ns=21_000_000_000),
        ]
        return {row.metric: row for row in rows(Results(windows))}

    good, bad = found(140_000_000), found(141_000_000)
    envoy, litellm = "CPU µs per JSON request, against Envoy", "CPU µs per JSON request, against LiteLLM"
    assert good.keys() == {envoy, litellm}
    assert (good[envoy].met, good[litellm].met) == (True, True)
    assert good[litellm].ratio == pytest.approx(150.0)
    assert (bad[envoy].met, bad[litellm].met) == (False, False)
    assert good[envoy].as_dict() == {
        "metric": envoy,
        "ours": 1400.0,
        "peer": 1000.0,
        "ratio": 1.4,
        "goal": "at most 1.4 times",
        "met": True,
        "contended": False,
    }


def test_added_latency_is_taken_within_a_round() -> None:
    windows = [
        window(name, LATENCY.name, number_of_round, p50=base + more, p99=base + 2 * more)
        for number_of_round, base in enumerate((0.1, 5.0, 0.2))
        for name, more in ((DIRECT, 0.0), (TUNELOOP, 0.3))
    ]
    p50, p99 = rows(Results(windows))
    assert (p50.ours, p50.met) == (pytest.approx(0.3), True)
    assert (p99.ours, p99.met) == (pytest.approx(0.6), True)


def test_rounds_with_others_at_work_count_only_when_there_are_no_others() -> None:
    clean, busy = window(TUNELOOP, MEMORY.name, 0, peak_kb=70 * 1024), {"others": 0.5, "peak_kb": 90 * 1024}
    mixed = Results([clean, window(TUNELOOP, MEMORY.name, 1, **busy)])
    assert (mixed.median(MEMORY, TUNELOOP, "peak_mb"), mixed.contended(MEMORY, TUNELOOP)) == (70.0, False)
    (row,) = rows(Results([window(TUNELOOP, MEMORY.name, 1, **busy)]))
    assert (row.ours, row.met, row.contended) == (90.0, False, True)


def test_windows_with_bad_answers_count_nowhere() -> None:
    wrong = [window(TUNELOOP, MEMORY.name, 0, errors=1, peak_kb=1024), window(TUNELOOP, MEMORY.name, 1, answers=0)]
    assert all(one.wrong for one in wrong)
    assert rows(Results(wrong)) == []


def test_a_section_is_replaced_and_the_others_stay() -> None:
    first = put_section("", "gateway", "one")
    document = first + "\n## Other\n\nkept\n"
    second = put_section(document, "gateway", "two")
    assert second == document.replace("one", "two")
    appended = put_section("# Benchmarks\n\n## Other\n", "gateway", "one")
    assert appended.startswith("# Benchmarks\n\n## Other\n\n<!-- gateway")
    assert first.startswith("# Benchmarks\n")


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.123, "0.12"), (-0.02, "-0.02"), (12.34, "12.3"), (4567.8, "4,568")]
)
def test_numbers_say_no_more_than_was_measured(value: float | None, text: str) -> None:
    assert number(value) == text
