"""Copies never take more tokens in an hour than they may, whatever happens to the gateway or its clock."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.gateway.budget import Reserved, TokenBudget
from pipeline.gateway.shadow import is_drawn
from pipeline.records import Route, Target

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BUDGETS = {"support": 100, "sales": 7}

moves = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "settle", "crash"]),
        st.sampled_from(sorted(BUDGETS)),
        st.integers(1, 60),  # tokens at most
        st.floats(0, 1),  # share of them that is used
        st.integers(-90, 90),  # minutes since the move before
    ),
    max_size=40,
)


@given(moves)
def test_what_is_used_in_an_hour_is_never_above_the_budget(
    tmp_path_factory: pytest.TempPathFactory, happenings: list[tuple[str, str, int, float, int]]
) -> None:
    file = tmp_path_factory.mktemp("budget") / "shadow.json"
    budget, now = TokenBudget(BUDGETS, file), NOON
    open_: list[tuple[Reserved, int]] = []
    used: dict[tuple[str, datetime], int] = defaultdict(int)
    for move, business, tokens, share, minutes in happenings:
        now += timedelta(minutes=minutes)
        if move == "reserve" and (reserved := budget.reserve(business, tokens, now)):
            budget.keep()
            open_.append((reserved, int(tokens * share)))
            used[business, reserved.start] += open_[-1][1]  # from here on the engine may take them
        elif move == "settle" and open_:
            budget.settle(*open_.pop())
        elif move == "crash":
            budget, open_ = TokenBudget(BUDGETS, file), []
        assert all(total <= BUDGETS[name] for (name, _), total in used.items())


def test_what_was_not_used_may_be_taken_again_within_the_hour_and_the_next_hour_is_whole(tmp_path: Path) -> None:
    budget = TokenBudget(BUDGETS, tmp_path / "shadow.json")
    first = budget.reserve("support", 80, NOON)
    assert first is not None
    assert budget.reserve("support", 30, NOON) is None
    budget.settle(first, 10)
    second = budget.reserve("support", 90, NOON + timedelta(minutes=59))
    assert second is not None
    next_hour = NOON + timedelta(hours=1)
    assert budget.reserve("support", 100, next_hour) is not None
    budget.settle(second, 0)
    assert budget.reserve("support", 1, next_hour) is None


def test_a_clock_that_is_set_back_opens_no_new_hour(tmp_path: Path) -> None:
    budget = TokenBudget(BUDGETS, tmp_path / "shadow.json")
    assert budget.reserve("support", 100, NOON) is not None
    assert budget.reserve("support", 1, NOON - timedelta(minutes=1)) is None


def test_a_business_without_a_budget_has_none(tmp_path: Path) -> None:
    assert TokenBudget(BUDGETS, tmp_path / "shadow.json").reserve("legal", 1, NOON) is None


def test_requests_are_drawn_by_their_id_in_the_share_that_is_asked_for() -> None:
    target = Target(model="base", version=None, replicas=())
    narrow, wide = (Route(business="support", stable=target, salt="r1", shadow=share) for share in (0.1, 0.3))
    ids = [f"interaction-{number}" for number in range(20_000)]
    drawn = {one for one in ids if is_drawn(narrow, one)}
    assert abs(len(drawn) / len(ids) - 0.1) < 0.01  # 4.7 standard deviations
    assert drawn < {one for one in ids if is_drawn(wide, one)}
    assert not any(is_drawn(narrow.model_copy(update={"shadow": 0.0}), one) for one in ids)
