"""The traffic behind a canary's step, as gateways log it: users of candidate and control, who ask and react."""

import math
import random
from datetime import datetime, timedelta
from typing import NamedTuple

from evals.worlds.candidates import Online
from evals.worlds.content import Content
from evals.worlds.events import Log
from pipeline.gateway.routing import assignment_hash, choose_arm
from pipeline.records import Arm, Feedback, FeedbackKind, Interaction, StreamEnd, Timings, Usage

_FAILS, _AGAIN, _DOWN = 0.01, 0.08, 0.05
"""What happens to any model: cut streams, regenerations, thumbs down."""


class Traffic(NamedTuple):
    """One step's events, in order of time."""

    interactions: list[Interaction]
    feedback: list[Feedback]


def canary_traffic(
    content: Content,
    online: Online,
    *,
    models: tuple[str, str],
    salt: str,
    share: float,
    users: int,
    since: datetime,
    minutes: float,
    seed: str,
) -> Traffic:
    """Requests of so many users in each arm that there is at this share.

    Args:
        online: how the candidate serves.
        models: serving names of stable and candidate.
        salt: of the rollout; users are drawn by its hash, as a gateway does.
        share: the candidate's, in (0, 1].
        users: in each arm.
        since: the step's start; the requests come within so many `minutes` of it.
    """
    rng = random.Random(seed)
    log = Log(content, rng)
    questions = content.draw(rng, 150)
    for arm in (Arm.CANDIDATE, Arm.CONTROL) if share <= 0.5 else (Arm.CANDIDATE,):
        candidate = arm is Arm.CANDIDATE
        for user in _users(log, rng, salt, share, arm, users):
            pace = math.exp(rng.gauss(0, 0.3)) * (online.slower if candidate else 1.0)
            temper = rng.gammavariate(2.0, 0.5)
            for _ in range(rng.randint(1, 3)):
                cut = rng.random() < _FAILS * temper + (online.cuts if candidate else 0.0)
                one = _request(log, rng, rng.choice(questions).text, user, models[candidate], since, minutes, pace, cut)
                one = one.model_copy(update={"arm": arm, "share": share, "rollout_salt": salt})
                log.interactions[-1] = one
                if rng.random() < _AGAIN * temper + (online.regenerated if candidate else 0.0):
                    log.say(one, FeedbackKind.REGENERATE, True, timedelta(seconds=20))
                if rng.random() < _DOWN * temper:
                    log.say(one, FeedbackKind.THUMB, "down", timedelta(seconds=30))
    return Traffic(
        sorted(log.interactions, key=lambda one: one.started_at),
        sorted(log.feedback, key=lambda said: said.received_at),
    )


def _users(log: Log, rng: random.Random, salt: str, share: float, arm: Arm, count: int) -> list[str]:
    """Users whom the rollout's hash puts into the arm."""
    found: list[str] = []
    while len(found) < count:
        user = log.user(f"canary {rng.getrandbits(64)}")
        if choose_arm(assignment_hash(salt, user), share) is arm:
            found.append(user)
    return found


def _request(
    log: Log,
    rng: random.Random,
    text: str,
    user: str,
    model: str,
    since: datetime,
    minutes: float,
    pace: float,
    cut: bool,
) -> Interaction:
    tokens = rng.randint(20, 60)
    first = 200 * pace * math.exp(rng.gauss(0, 0.3))
    gap = 20 * pace * math.exp(rng.gauss(0, 0.2))
    one = log.ask(
        text,
        "" if cut else "Here it is.",
        user=user,
        at=since + timedelta(minutes=rng.uniform(0.01, minutes)),
        model=model,
        session=log.user(f"{user} {len(log.interactions)}"),
        end=StreamEnd.UPSTREAM_CUT if cut else StreamEnd.COMPLETE,
    )
    timings = Timings(queue_ms=1.0, ttft_ms=first, gap_p50_ms=gap, gap_p99_ms=2 * gap, total_ms=first + gap * tokens)
    return one.model_copy(update={"timings": timings, "usage": Usage(prompt_tokens=30, completion_tokens=tokens)})
