"""What was promised, held against what happened. Pure; each violation names whom it hit."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.history import Ending, History, Outage, Turn
from tests.chaos.schedule import DISK, ENGINES, What

NOTICE_S = 1.0
"""The end of a process and what clients see of it are this far apart at most, on a busy machine."""
KEPT_WITHIN_S = 2.0
"""An interaction is on disk this long after its answer, on a busy machine and a disk that takes it."""
STOPPED_BEFORE_S = 15.0
"""A gateway stops a candidate that fails in bursts this much before the controller writes it down, if that is down."""
LEARNT_WITHIN_S = 10.0
"""A gateway learns this much later of an end, if it was down itself, or the controller before it could tell."""


class Violation(NamedTuple):
    """A promise that did not hold."""

    promise: str
    who: str
    """The id that it happened to."""
    how: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.who}: {self.how}"


def check(history: History) -> list[Violation]:
    """All violations."""
    return [violation for promise in PROMISES for violation in promise(history)]


def no_stream_is_cut(history: History) -> Iterator[Violation]:
    """Only those whose gateway or engine was killed, or hung, while they ran."""
    for turn in history.turns:
        if turn.end == "cut" and not any(_hits(outage, turn, turn.engine) for outage in history.outages):
            how = f"{turn.gateway} cut its stream from {turn.engine or 'an engine'} {_when(turn)}; neither was down"
            yield Violation("no stream is cut", turn.interaction_id or turn.conversation, f"{how} {turn.detail}")


def every_request_is_answered(history: History) -> Iterator[Violation]:
    """A dead gateway cannot answer, and an engine that hangs takes its requests with it; one that died does not."""
    for turn in history.turns:
        if turn.end == "unreachable" and not any(_is_of(outage, turn.gateway, turn) for outage in history.outages):
            how = f"{turn.gateway} did not answer {_when(turn)}, and was not down"
            yield Violation("every request is answered", turn.conversation, f"{how}: {turn.detail}")
        if turn.end == "refused" and not _engines_excuse(history.outages, turn):
            who = turn.interaction_id or turn.conversation
            how = f"{turn.gateway} answered {turn.status} {_when(turn)}, and an engine was there to serve it"
            yield Violation("every request is answered", who, f"{how}: {turn.detail}")


def no_conversation_changes_its_arm(history: History) -> Iterator[Violation]:
    """But to stable, when a rollout has ended."""
    ends = [rollout.ended for rollout in (history.ending.rollouts if history.ending else []) if rollout.ended]
    conversations: dict[str, list[Turn]] = defaultdict(list)
    for turn in sorted(history.turns, key=lambda turn: turn.began):
        if turn.arm:
            conversations[turn.conversation].append(turn)
    for name, turns in conversations.items():
        for before, after in pairwise(turns):
            left = any(before.began - LEARNT_WITHIN_S <= end <= after.ended + STOPPED_BEFORE_S for end in ends)
            if before.arm != after.arm and not (after.arm == "stable" and left):
                how = f"went from {before.arm} at {before.gateway} to {after.arm} at {after.gateway}"
                yield Violation("no conversation changes its arm", name, f"{how} {_when(after)}")


def no_accepted_feedback_is_lost_or_doubled(history: History) -> Iterator[Violation]:
    """Whatever was sent twice, or killed."""
    sent = {vote.event_id: vote for vote in history.votes}
    for event_id, times in sorted(history.collected.items()):
        if times != 1:
            yield Violation("no feedback counts twice", event_id, f"collect finds it {times} times")
        if event_id not in sent:
            yield Violation("no feedback counts twice", event_id, "nobody ever sent it")
    for vote in history.votes:
        if vote.accepted and vote.event_id not in history.collected:
            how = f"{vote.gateway} answered 202 at {vote.at:.3f}, and collect does not find it"
            yield Violation("no accepted feedback is lost", vote.event_id, how)


def every_answer_is_logged_once(history: History) -> Iterator[Violation]:
    """What a gateway had not written yet when it was killed is lost with it, and nothing else."""
    logged = defaultdict(list)
    for line in history.log:
        logged[line.interaction_id].append(line)
    for interaction_id, lines in logged.items():
        if len(lines) > 1:
            yield Violation("every answer is logged once", interaction_id, f"it stands {len(lines)} times in the log")
    for turn in history.turns:
        if turn.end != "complete":
            continue
        found = logged.get(turn.interaction_id)
        if found is None:
            if not _lost_with_its_gateway(history.outages, turn):
                how = f"the user had all of it from {turn.gateway} at {turn.ended:.3f}, and it is not in the log"
                yield Violation("every answer is logged once", turn.interaction_id, how)
            continue
        line = found[0]
        seen = (turn.arm, turn.model, "complete")
        if (line.arm, line.model, line.stream_end) != seen:
            how = f"the user saw {seen}, the log says {(line.arm, line.model, line.stream_end)}"
            yield Violation("every answer is logged once", turn.interaction_id, how)


def no_name_has_two_contents(history: History) -> Iterator[Violation]:
    """What answers under a version's name are the weights that were registered for it."""
    if history.ending is None:
        return
    told = {(turn.model, turn.content): turn for turn in history.turns if turn.content}
    for (model, content), turn in sorted(told.items()):
        registered = history.ending.contents.get(model)
        if content != registered:
            how = f"engine {turn.engine} answered from {content} {_when(turn)}, registered is {registered}"
            yield Violation("no version has two contents", f"{model} in {turn.interaction_id}", how)


def everybody_agrees_in_the_end(history: History) -> Iterator[Violation]:
    """Control database, published routes, gateways, aliases and engines."""
    end = history.ending
    if end is None:
        yield Violation("everybody agrees in the end", f"seed {history.seed}", "the end was never reached")
        return
    promise = "everybody agrees in the end"
    if (end.published.stable, end.published.candidate) != (end.stable, None):
        yield Violation(promise, "published routes", f"{end.published}; the ledger's stable version is {end.stable}")
    for name, table in end.gateways.items():
        if table != end.published:
            yield Violation(promise, name, f"it serves by {table}; published is {end.published}")
    wanted = {"champion": end.stable, "previous": end.previous}
    if end.aliases != {alias: version for alias, version in wanted.items() if version is not None}:
        yield Violation(promise, "aliases", f"{end.aliases}; the ledger says {wanted}")
    yield from _engines_agree(end, promise)


def _engines_agree(end: Ending, promise: str) -> Iterator[Violation]:
    serving = next((name for name in end.contents if f"-v{end.stable}-" in name), None)
    for name, held in end.engines.items():
        if serving and serving not in held:
            yield Violation(promise, f"engine {name}", f"it does not hold {serving}, but {sorted(held)}")
    if len(end.published.replicas) != len(end.engines):
        yield Violation(promise, "published routes", f"only {end.published.replicas} serve, of {sorted(end.engines)}")


def every_rollout_ends_with_its_reason(history: History) -> Iterator[Violation]:
    """In steady, promoted or rolled back."""
    end = history.ending
    if end is None:
        return
    if end.state != "steady" or end.owed:
        how = f"the ledger is {end.state} and owes {end.owed} things"
        yield Violation("every rollout ends", f"seed {history.seed}", how)
    for rollout in end.rollouts:
        if rollout.result not in ("promote", "roll_back") or not rollout.reason:
            how = f"it began at {rollout.began:.3f} and has result '{rollout.result}', reason '{rollout.reason}'"
            yield Violation("every rollout ends", f"version {rollout.version}", how)


PROMISES: tuple[Callable[[History], Iterator[Violation]], ...] = (
    no_stream_is_cut,
    every_request_is_answered,
    no_conversation_changes_its_arm,
    no_accepted_feedback_is_lost_or_doubled,
    every_answer_is_logged_once,
    no_name_has_two_contents,
    everybody_agrees_in_the_end,
    every_rollout_ends_with_its_reason,
)


def _is_of(outage: Outage, part: str, turn: Turn) -> bool:
    return outage.part == part and outage.overlaps(turn.began, turn.ended + NOTICE_S)


def _hits(outage: Outage, turn: Turn, engine: str) -> bool:
    """Whether a turn ran through a part while that was down; before its first word nobody knows the engine."""
    engines = (engine,) if engine else ENGINES
    return any(_is_of(outage, part, turn) for part in (turn.gateway, *engines))


def _engines_excuse(outages: Iterable[Outage], turn: Turn) -> bool:
    """An engine hung, or none was whole."""
    of_engines = [outage for outage in outages if any(_is_of(outage, engine, turn) for engine in ENGINES)]
    hung = any(outage.what == What.HANG for outage in of_engines)
    return hung or {outage.part for outage in of_engines} == set(ENGINES)


def _lost_with_its_gateway(outages: Iterable[Outage], turn: Turn) -> bool:
    """The gateway was killed before the answer was on disk: at once, or later if the disk took nothing meanwhile."""
    full = [outage for outage in outages if outage.part == DISK]
    for kill in (outage for outage in outages if outage.part == turn.gateway and outage.began >= turn.ended - NOTICE_S):
        since = kill.began - KEPT_WITHIN_S
        since = min([since, *(o.began for o in full if o.began <= kill.began <= o.ended + KEPT_WITHIN_S)])
        if turn.ended >= since:
            return True
    return False


def _when(turn: Turn) -> str:
    return f"from {turn.began:.3f} to {turn.ended:.3f}"


def summary(history: History) -> str:
    """Counts for the last line."""
    ends = Counter(turn.end for turn in history.turns)
    rollouts = Counter(rollout.result for rollout in (history.ending.rollouts if history.ending else []))
    accepted = sum(vote.accepted for vote in history.votes)
    told = [f"{len(history.turns)} requests ({', '.join(f'{n} {end}' for end, n in sorted(ends.items()))})"]
    told += [f"{accepted} of {len(history.votes)} feedbacks accepted", f"{len(history.outages)} outages"]
    told += [f"{sum(rollouts.values())} rollouts ({', '.join(f'{n} {r}' for r, n in sorted(rollouts.items()))})"]
    return "; ".join(told)
