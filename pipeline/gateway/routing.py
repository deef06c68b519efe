"""Which arm a conversation belongs to. Pure: the same salt, user and share give the same arm on every gateway."""

import hashlib
from dataclasses import dataclass

from pipeline.records import Arm, Route, Target

CONTROL_LIMIT = 0.5
"""Above this share there is no slice of equal size left for control."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What was decided when a conversation was first seen; it holds for as long as the conversation lives."""

    salt: str
    arm: Arm
    share: float
    """The candidate's share in force at that moment."""


def assignment_hash(salt: str, who: str) -> float:
    """Uniform in [0, 1) over users (else sessions), independent between salts."""
    digest = hashlib.sha256(f"{salt}\0{who}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)  # 53 bits: every value is an exact double below 1


def user_group(position: float) -> str:
    """Hundredth of the assignment hash: `g00` to `g99`."""
    return f"g{int(position * 100):02d}"


def choose_arm(position: float, share: float) -> Arm:
    """Candidate at the low end of the hash range, control of the same size at the high end, stable between.

    Widening the share keeps every earlier candidate: `position < share` stays true.
    """
    if position < share:
        return Arm.CANDIDATE
    if 0.0 < share <= CONTROL_LIMIT and position >= 1.0 - share:
        return Arm.CONTROL
    return Arm.STABLE


def assign(route: Route, position: float, *, settled: bool = True) -> Assignment:
    """Assign a conversation that was never seen before.

    Args:
        settled: False in a rollout's first moments, when nobody is drawn (see `routes.RouteTable.is_settled`).
    """
    share = route.share if route.candidate is not None and settled else 0.0
    return Assignment(salt=route.salt, arm=choose_arm(position, share), share=share)


def arm_now(assignment: Assignment, route: Route, *, candidate_barred: bool) -> Arm:
    """The arm that serves this turn.

    It is the assigned one, except that a conversation of an earlier rollout is stable in this one (it was not drawn
    for it), and that a candidate which was rolled back or barred leaves its conversations to stable.
    """
    if assignment.salt != route.salt or route.candidate is None:
        return Arm.STABLE
    if assignment.arm is Arm.CANDIDATE and candidate_barred:
        return Arm.STABLE
    return assignment.arm


def target_of(route: Route, arm: Arm) -> Target:
    """What serves an arm; control is served like stable and only counted apart."""
    if arm is Arm.CANDIDATE and route.candidate is not None:
        return route.candidate
    return route.stable


def pick_replica(replicas: tuple[str, ...], in_flight: dict[str, int], preferred: int) -> str:
    """The replica with the fewest requests in flight; among equals the one that this conversation prefers, because
    it may still hold the conversation's prefix.

    Args:
        preferred: any number that stays the same through a conversation.
    """
    if len(replicas) == 1:
        return replicas[0]
    start = preferred % len(replicas)
    order = replicas[start:] + replicas[:start]
    return min(order, key=lambda replica: in_flight.get(replica, 0))
