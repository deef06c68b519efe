"""When a step can have its users, by what came at this time of day before."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import StepConfig
from pipeline.events.visits import read_visits
from pipeline.rollout.forecast import first_look, forecast, shortfall
from tests.builders import an_interaction

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
STEP = StepConfig(share=0.1, min_minutes=30, min_users=6, timeout_minutes=1440)


def visits(days: int, every_minutes: float, users: int = 1000) -> list[tuple[datetime, str]]:
    """Somebody new every so many minutes, until that many have come in a day; then nobody more."""
    begin = NOW - timedelta(days=days)
    return [
        (begin + timedelta(days=day, minutes=n * every_minutes), f"u{day}-{n}")
        for day in range(days)
        for n in range(min(users, int(1440 / every_minutes)))
    ]


def test_it_is_as_long_as_it_was_before() -> None:
    told = forecast(visits(days=10, every_minutes=5), STEP, NOW)
    assert (told.users, told.days, told.in_time) == (6, 7, 7)
    assert told.minutes == 59 * 5  # the sixtieth of all users is about the sixth of the arm's tenth


def test_users_who_are_there_already_and_time_that_has_passed_count() -> None:
    assert forecast(visits(10, 5), STEP, NOW, seen=5).minutes == 45
    assert forecast(visits(10, 5), STEP, NOW, seen=6).minutes == 30
    assert forecast(visits(10, 5), STEP, NOW, seen=6, waited_minutes=20).minutes == 10
    assert forecast(visits(10, 5), STEP, NOW, waited_minutes=1300).minutes is None


def test_a_business_that_is_too_small_is_told_so() -> None:
    told = forecast(visits(10, 5, users=59), STEP, NOW)
    assert (told.minutes, told.in_time, told.days) == (None, 0, 7)


def test_a_canary_in_vain_is_told_with_a_share_that_would_do() -> None:
    few = visits(10, 5, users=40)
    told = shortfall(few, (STEP,), NOW)
    assert told is not None
    assert "a step of 10% each arm would have had 6 users within 1440 minutes on 0 of the last 7 days" in told
    assert "set a share of 20%, a longer" in told
    assert shortfall(visits(10, 5, users=60), (STEP,), NOW) is None
    later = STEP.model_copy(update={"share": 0.5, "min_users": 400})
    hopeless = shortfall(visits(10, 5, users=60), (STEP, later), NOW)
    assert hopeless is not None
    assert "set a longer" in hopeless


def test_the_first_days_of_a_business_are_no_evidence_against_it() -> None:
    assert shortfall(visits(2, 5, users=1), (STEP,), NOW) is None
    assert shortfall([], (STEP,), NOW) is None


def test_without_an_earlier_day_nobody_knows() -> None:
    assert forecast([], STEP, NOW).days == 0
    young = [visit for visit in visits(1, 5) if visit[0] > NOW - timedelta(hours=20)]
    assert forecast(young, STEP, NOW).days == 0


def test_a_step_of_two_days_looks_further_back() -> None:
    slow = STEP.model_copy(update={"timeout_minutes": 2880.0})
    assert first_look(slow, NOW) == first_look(STEP, NOW) - timedelta(days=1)
    told = forecast(visits(10, 5, users=40), slow, NOW)
    assert told.minutes == 1440 + 19 * 5


@given(
    st.lists(st.tuples(st.integers(0, 12 * 1440), st.integers(0, 30)), max_size=60),
    st.integers(1, 20),
    st.sampled_from([0.05, 0.5, 1.0]),
    st.integers(0, 25),
    st.integers(0, 3000),
)
def test_whatever_came_it_is_never_sooner_than_the_minimum_and_more_users_are_never_quicker(
    came: list[tuple[int, int]], users: int, share: float, seen: int, waited: int
) -> None:
    log = sorted((NOW - timedelta(minutes=ago), f"u{who}") for ago, who in came)
    step = STEP.model_copy(update={"min_users": users, "share": share})
    told = forecast(log, step, NOW, seen, waited)
    more = forecast(log, step.model_copy(update={"min_users": users + 1}), NOW, seen, waited)
    assert 0 <= told.in_time <= told.days <= 7
    assert more.in_time <= told.in_time
    if told.minutes is not None:
        assert told.minutes >= max(0, 30 - waited)
        assert more.minutes is None or more.minutes >= told.minutes
        assert told.in_time * 2 >= told.days > 0


def test_visits_are_read_off_the_event_log(tmp_path: Path) -> None:
    segments = tmp_path / "segments"
    segments.mkdir()
    lines = [
        an_interaction("one", user_key="u1", session="s1", started_at=NOW),
        an_interaction("two", user_key=None, session="s2", started_at=NOW + timedelta(seconds=1)),
        an_interaction("late", user_key="u3", started_at=NOW + timedelta(hours=1)),
        an_interaction("other", business="kefu", user_key="u4", started_at=NOW),
    ]
    text = "".join(json.dumps({"interaction": line.model_dump(mode="json")}) + "\n" for line in lines)
    (segments / "gw-20260310T12.jsonl").write_text(text)
    found = read_visits(tmp_path, "support", NOW, NOW + timedelta(minutes=30))
    assert found == [(NOW, "u1"), (NOW + timedelta(seconds=1), "s2")]
    assert read_visits(tmp_path, "nobody", NOW, NOW + timedelta(days=1)) == []
