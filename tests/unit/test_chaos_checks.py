"""The chaos test's checks: an undisturbed history breaks no promise, and each doctored one breaks exactly its own."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.checks import PROMISES, check
from tests.chaos.history import Ending, History, Logged, Outage, Rollout, Table, Turn, Vote
from tests.chaos.schedule import ENGINES, What, make_schedule

SERVED = "support-v1-aaaaaaaa"
CANDIDATE = "support-v2-bbbbbbbb"


def a_turn(number: int, began: float, **fields: object) -> Turn:
    turn = Turn(
        conversation=f"c{number}",
        gateway="gateway-a",
        began=began,
        ended=began + 1.0,
        end="complete",
        status=200,
        interaction_id=f"i{number}",
        arm="stable",
        model=SERVED,
        engine="one",
        content="aaa",
    )
    return replace(turn, **fields)  # type: ignore[arg-type]


def logged(turn: Turn) -> Logged:
    return Logged(turn.interaction_id, turn.arm, turn.model, "complete")


def a_history() -> History:
    """Five answers, two of one conversation on the candidate until its rollback; a feedback sent twice; all is well."""
    turns = [a_turn(number, 100.0 + number) for number in range(3)]
    turns.append(a_turn(3, 110.0, arm="candidate", model=CANDIDATE, content="bbb"))
    turns.append(a_turn(4, 130.0, conversation="c3"))
    table = Table(7, 1, None, ("http://one", "http://two"))
    ending = Ending(
        state="steady",
        stable=1,
        previous=None,
        owed=0,
        published=table,
        gateways={"gateway-a": replace(table), "gateway-b": replace(table)},
        aliases={"champion": 1},
        engines={"one": [SERVED, CANDIDATE], "two": [SERVED]},
        rollouts=[Rollout(2, 105.0, 125.0, "roll_back", "complaints")],
        contents={SERVED: "aaa", CANDIDATE: "bbb", "base": "base"},
    )
    votes = [Vote("e1", "i1", "gateway-a", 103.0, accepted=True), Vote("e2", "i2", "gateway-b", 104.0)]
    return History(1, turns, votes, [], [logged(turn) for turn in turns], {"e1": 1}, ending)


def the_end(history: History) -> Ending:
    assert history.ending is not None
    return history.ending


def cut(history: History) -> None:
    history.turns[1].end = "cut"
    del history.log[1]


def refuse(history: History) -> None:
    history.turns[1] = a_turn(1, 101.0, end="refused", status=502)


def not_reached(history: History) -> None:
    history.turns[1] = a_turn(1, 101.0, end="unreachable", status=0, arm="")


def drawn_to_the_candidate(history: History) -> None:
    history.turns.append(a_turn(5, 115.0, conversation="c1", arm="candidate", model=CANDIDATE, content="bbb"))
    history.log.append(logged(history.turns[-1]))


def back_to_stable_without_a_rollback(history: History) -> None:
    the_end(history).rollouts[0].ended = 500.0


def lose_a_feedback(history: History) -> None:
    history.collected.clear()


def double_a_feedback(history: History) -> None:
    history.collected["e1"] = 2


def make_up_a_feedback(history: History) -> None:
    history.collected["e9"] = 1


def lose_an_answer(history: History) -> None:
    del history.log[1]


def log_an_answer_twice(history: History) -> None:
    history.log.append(replace(history.log[1]))


def log_another_arm(history: History) -> None:
    history.log[1].arm = "control"


def answer_from_other_weights(history: History) -> None:
    history.turns[1].content = "ccc"


def leave_a_gateway_behind(history: History) -> None:
    the_end(history).gateways["gateway-b"].generation = 6


def publish_another_version(history: History) -> None:
    end = the_end(history)
    for table in (end.published, *end.gateways.values()):
        table.stable = 2


def leave_a_wish(history: History) -> None:
    the_end(history).aliases["promote"] = 3


def move_the_champion(history: History) -> None:
    the_end(history).aliases["champion"] = 2


def forget_on_an_engine(history: History) -> None:
    the_end(history).engines["two"] = []


def leave_an_engine_out(history: History) -> None:
    end = the_end(history)
    for table in (end.published, *end.gateways.values()):
        table.replicas = ("http://one",)


def leave_a_canary(history: History) -> None:
    the_end(history).state = "canary"


def leave_something_owed(history: History) -> None:
    the_end(history).owed = 1


def end_without_a_reason(history: History) -> None:
    the_end(history).rollouts[0].reason = ""


def never_end(history: History) -> None:
    the_end(history).rollouts.append(Rollout(3, 140.0))


DOCTORED: tuple[tuple[Callable[[History], None], str, str], ...] = (
    (cut, "no stream is cut", "i1"),
    (refuse, "every request is answered", "i1"),
    (not_reached, "every request is answered", "c1"),
    (drawn_to_the_candidate, "no conversation changes its arm", "c1"),
    (back_to_stable_without_a_rollback, "no conversation changes its arm", "c3"),
    (lose_a_feedback, "no accepted feedback is lost", "e1"),
    (double_a_feedback, "no feedback counts twice", "e1"),
    (make_up_a_feedback, "no feedback counts twice", "e9"),
    (lose_an_answer, "every answer is logged once", "i1"),
    (log_an_answer_twice, "every answer is logged once", "i1"),
    (log_another_arm, "every answer is logged once", "i1"),
    (answer_from_other_weights, "no version has two contents", SERVED),
    (leave_a_gateway_behind, "everybody agrees in the end", "gateway-b"),
    (publish_another_version, "everybody agrees in the end", "published routes"),
    (leave_a_wish, "everybody agrees in the end", "aliases"),
    (move_the_champion, "everybody agrees in the end", "aliases"),
    (forget_on_an_engine, "everybody agrees in the end", "engine two"),
    (leave_an_engine_out, "everybody agrees in the end", "published routes"),
    (leave_a_canary, "every rollout ends", "seed 1"),
    (leave_something_owed, "every rollout ends", "seed 1"),
    (end_without_a_reason, "every rollout ends", "version 2"),
    (never_end, "every rollout ends", "version 3"),
)


def test_a_history_in_which_all_is_well_breaks_no_promise() -> None:
    assert check(a_history()) == []


@pytest.mark.parametrize(("doctor", "promise", "who"), DOCTORED, ids=[doctor.__name__ for doctor, _, _ in DOCTORED])
def test_a_doctored_history_breaks_its_promise_and_names_whom_it_hit(
    doctor: Callable[[History], None], promise: str, who: str
) -> None:
    history = a_history()
    doctor(history)
    found = check(history)
    assert {violation.promise for violation in found} == {promise}
    assert who in found[0].who
    assert found[0].how


def test_every_promise_is_broken_by_some_doctored_history() -> None:
    broken = set()
    for doctor, _, _ in DOCTORED:
        history = a_history()
        doctor(history)
        broken |= {promise for promise in PROMISES if list(promise(history))}
    assert broken == set(PROMISES)


def test_a_run_that_never_came_to_its_end_breaks_a_promise() -> None:
    history = a_history()
    history.ending = None
    assert "everybody agrees in the end" in {violation.promise for violation in check(history)}


@pytest.mark.parametrize(
    ("doctor", "outages", "excused"),
    [
        (cut, [Outage("gateway-a", What.KILL, 101.5, 104.0)], True),
        (cut, [Outage("gateway-b", What.KILL, 101.5, 104.0)], False),
        (cut, [Outage("one", What.KILL, 101.5, 104.0)], True),
        (cut, [Outage("two", What.KILL, 101.5, 104.0)], False),
        (cut, [Outage("one", What.KILL, 90.0, 99.0)], False),
        (cut, [Outage("controller", What.KILL, 101.5, 104.0)], False),
        (refuse, [Outage("one", What.KILL, 90.0, 110.0)], False),
        (refuse, [Outage("one", What.HANG, 90.0, 110.0)], True),
        (refuse, [Outage(engine, What.KILL, 90.0, 110.0) for engine in ENGINES], True),
        (not_reached, [Outage("gateway-a", What.KILL, 100.0, 110.0)], True),
        (not_reached, [Outage("one", What.KILL, 100.0, 110.0)], False),
        (lose_an_answer, [Outage("gateway-a", What.KILL, 102.5, 110.0)], True),
        (lose_an_answer, [Outage("gateway-a", What.KILL, 107.0, 110.0)], False),
        (
            lose_an_answer,
            [Outage("disk", What.FILL, 101.0, 106.0), Outage("gateway-a", What.KILL, 107.0, 110.0)],
            True,
        ),
        (lose_an_answer, [Outage("disk", What.FILL, 101.0, 106.0)], False),
    ],
)
def test_only_what_was_down_excuses(doctor: Callable[[History], None], outages: list[Outage], excused: bool) -> None:
    history = a_history()
    doctor(history)
    history.outages = outages
    assert (check(history) == []) is excused


@given(st.integers(0, 10_000), st.floats(10.0, 600.0))
def test_a_schedule_is_the_same_again_and_leaves_one_gateway_and_one_engine_up(seed: int, seconds: float) -> None:
    schedule = make_schedule(seed, seconds, versions=4)
    assert schedule == make_schedule(seed, seconds, versions=4)
    assert [event.at_s for event in schedule] == sorted(event.at_s for event in schedule)
    assert schedule[0].what is What.PROMOTE or schedule[0].at_s <= 1.0
    for kind in ("gateway", "one two", "controller", "mlflow", "disk"):
        lane = [event for event in schedule if event.target.split("-")[0] in kind]
        assert lane, kind
        assert all(earlier.at_s + earlier.lasts_s < later.at_s for earlier, later in pairwise(lane))


def test_another_seed_is_another_schedule() -> None:
    seeds = random.Random(0).sample(range(10_000), 20)
    assert len({make_schedule(seed, 60.0, versions=4) for seed in seeds}) == len(seeds)
