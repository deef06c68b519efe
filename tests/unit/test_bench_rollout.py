"""The rollout benchmark's arithmetic."""

from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.rollout.moments import first_after, last_until

TIMES = st.lists(st.floats(0.0, 100.0), max_size=30).map(sorted)
MOMENT = st.floats(0.0, 100.0)


def test_a_request_before_the_call_and_one_after_the_next_canary_do_not_count() -> None:
    starts = [1.0, 2.0, 2.25, 7.0]
    assert last_until(starts, asked=2.0, until=5.0) == 0.25
    assert last_until(starts, asked=3.0, until=5.0) == 0.0
    assert first_after(starts, asked=3.0) == 4.0
    assert first_after(starts, asked=8.0) is None


@given(TIMES, MOMENT, MOMENT)
def test_both_agree_with_looking_at_every_request(starts: list[float], asked: float, more: float) -> None:
    until = asked + more
    later = [start - asked for start in starts if start >= asked]
    assert first_after(starts, asked) == (later[0] if later else None)
    within = [start - asked for start in starts if asked <= start < until]
    assert last_until(starts, asked, until) == (within[-1] if within else 0.0)
