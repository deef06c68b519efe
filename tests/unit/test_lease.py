"""Who leads: one at a time, whatever is stopped, killed, late or interleaved, and nobody writes what is another's."""

from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import Engine, delete

from pipeline.control import leases, rollouts
from pipeline.records import Route, Target
from pipeline.rollout.lease import Lease, LostLease
from pipeline.rollout.ledger import Ledger
from pipeline.rollout.state import Steady
from pipeline.rollout.store import RolloutStore, WriteConflict

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
STEADY = Steady(business="support")


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_the_first_leads_and_another_one_only_when_it_has_been_silent(control: Engine) -> None:
    clock = Clock()
    one, other = (Lease(control, name, 5.0, clock) for name in ("one", "other"))
    assert one.hold()
    assert not other.hold()
    for _ in range(3):
        clock.seconds += 4
        assert one.hold()
        assert not other.hold()
    clock.seconds += 4.9
    assert not other.hold()
    assert one.is_held()
    clock.seconds += 0.1
    assert not one.is_held()  # by itself, before anybody took it
    assert other.hold()
    assert not one.hold()
    assert (other.holder(), one.is_held(), other.is_held()) == ("other", False, True)


def test_one_that_ends_in_peace_or_comes_back_under_its_name_costs_no_wait(control: Engine) -> None:
    one, other = (Lease(control, name, 5.0, Clock()) for name in ("one", "other"))
    assert one.hold()
    again = Lease(control, "one", 5.0, Clock())
    assert again.hold()
    assert not other.hold()
    for lease in (one, again):
        lease.release()
    assert other.holder() is None
    assert other.hold()


def test_what_a_stopped_leader_decided_is_not_written_when_it_goes_on(control: Engine) -> None:
    clock = Clock()
    one, other = (Lease(control, name, 5.0, clock) for name in ("one", "other"))
    store = RolloutStore(control)
    old, new = store.fenced(one), store.fenced(other)
    assert one.hold()
    read = old.write(Ledger(state=STEADY), 0, NOW)
    assert not other.hold()
    clock.seconds += 5
    assert other.hold()
    with pytest.raises(LostLease):
        old.write(Ledger(state=STEADY, newest_tried=9), read.generation, NOW)
    routes = (Route(business="support", stable=Target(model="base", version=None, replicas=("http://e",))),)
    published = new.publish(routes, 0, NOW)
    with pytest.raises(LostLease):
        old.publish((), published.generation, NOW)
    assert (store.read("support"), store.routes()) == (read, published)
    new.write(Ledger(state=STEADY, newest_tried=1), read.generation, NOW)
    store.write(Ledger(state=STEADY, newest_tried=2), read.generation + 1, NOW)  # a person's command needs no lease


class Controllers(RuleBasedStateMachine):
    """Two controllers, each of which may sleep for as long as it likes between two steps."""

    control: Engine

    @initialize()
    def begin(self) -> None:
        with self.control.begin() as connection:
            connection.execute(delete(leases))
            connection.execute(delete(rollouts))
        self.clock = Clock()
        self.leases = [Lease(self.control, name, 5.0, self.clock) for name in "ab"]
        self.stores = [RolloutStore(self.control).fenced(lease) for lease in self.leases]
        self.read: list[int | None] = [None, None]
        self.writes = 0

    @rule(seconds=st.sampled_from([0.5, 3.0, 5.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.seconds += seconds

    @rule(who=st.integers(0, 1))
    def looks(self, who: int) -> None:
        """The beginning of a tick, or a beat."""
        led_before = self.leases[1 - who].is_held()
        held = self.leases[who].hold()
        assert not (held and led_before)
        self.read[who] = self.stores[who].read("support").generation if held else None

    @rule(who=st.integers(0, 1))
    def dies_and_comes_back(self, who: int) -> None:
        self.leases[who] = Lease(self.control, "ab"[who], 5.0, self.clock)
        self.stores[who] = RolloutStore(self.control).fenced(self.leases[who])
        self.read[who] = None

    @rule(who=st.integers(0, 1))
    def leaves(self, who: int) -> None:
        self.leases[who].release()

    @rule(who=st.integers(0, 1))
    def writes_what_it_decided(self, who: int) -> None:
        generation = self.read[who]
        if generation is None:
            return
        try:
            written = self.stores[who].write(Ledger(state=STEADY, newest_tried=self.writes + 1), generation, NOW)
        except (LostLease, WriteConflict):
            return
        self.writes += 1
        self.read[who] = written.generation

    @invariant()
    def one_leads_at_most_and_every_write_counts_once(self) -> None:
        if not hasattr(self, "leases"):
            return
        assert sum(lease.is_held() for lease in self.leases) <= 1
        stored = self.stores[0].read("support")
        assert (stored.generation, stored.ledger.newest_tried) == (self.writes, self.writes)


def test_whatever_two_controllers_do_one_leads_at_most(control: Engine) -> None:
    machine = type("Bound", (Controllers,), {"control": control})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
