"""The judge at work: human pairs first, then the candidate's answers against those in service.

Rulings are kept under a hash of all that was shown; a second run asks for none again and costs nothing. The file holds
hashes, letters and token counts, no text. What is asked stops where the budget is used up or the judge is away; pairs
that were not judged are counted and scored for neither side.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from evals.answers import Answers
from evals.endpoint import PromptRefused
from evals.judge.base import Better, Judge, Matchup, Ruling
from evals.judge.outcome import Outcome, agreement, combine, tally, win_share
from evals.judge.prompt import render, speaks_to_judge
from pipeline.config import JudgeConfig
from pipeline.errors import ServingError
from pipeline.records import EvalItem, EvalResult, Judging, Message, ScoredItem, content_id

_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with (done, total) after each pair."""


class _Pair(NamedTuple):
    """Two answers to one conversation; the first one's wins are counted."""

    messages: tuple[Message, ...]
    first: str
    second: str


def judge_answers(
    result: EvalResult,
    preferences: Sequence[EvalItem],
    judge: Judge,
    config: JudgeConfig,
    *,
    kept: Answers,
    confidence: float,
    on_progress: Progress | None = None,
) -> EvalResult:
    """The result with score `judge` for each item that was judged (1 for the better answer, 0 for the other, 0.5 each
    where neither is), and with what the judge is worth.

    Args:
        preferences: items with a `reference` that a user preferred to `rejected`; the judge's agreement is measured on
            them first, up to `config.human_pairs`.
        kept: rulings of earlier runs, and where new ones go.
        confidence: of the agreement's interval.
        on_progress: called from one thread at a time.
    """
    people = list(preferences[: config.human_pairs])
    items = [scored for scored in result.items if scored.item.set_name != "recent"][: config.max_items]
    pairs = [_Pair(item.messages, item.reference or "", item.rejected or "") for item in people]
    pairs += [_Pair(scored.item.messages, scored.candidate_answer, scored.baseline_answer) for scored in items]
    desk = _Desk(judge, config, kept)
    outcomes = desk.settle(pairs, on_progress or (lambda done, total: None))
    of_people, of_answers = outcomes[: len(people)], outcomes[len(people) :]
    agreed = agreement(of_people, [item.user_key for item in people], confidence)
    judging = Judging(
        judge=judge.name,
        answers=tally(of_answers),
        human_pairs=tally(of_people),
        human_users=agreed.users if agreed else 0,
        agreement=agreed and agreed.share,
        agreement_low=agreed and agreed.low,
        agreement_high=agreed and agreed.high,
        prompt_tokens=desk.prompt_tokens,
        completion_tokens=desk.completion_tokens,
        cost=desk.cost,
        currency=config.currency,
        budget=config.budget,
        problem=desk.problem,
    )
    judged = {scored.item.item_id: win_share(outcome) for scored, outcome in zip(items, of_answers, strict=True)}
    scored_items = tuple(_scored(scored, judged.get(scored.item.item_id)) for scored in result.items)
    return result.model_copy(update={"items": scored_items, "judging": judging})


def _scored(scored: ScoredItem, share: float | None) -> ScoredItem:
    if share is None:
        return scored
    sides = {"baseline": scored.baseline | {"judge": 1 - share}, "candidate": scored.candidate | {"judge": share}}
    return scored.model_copy(update=sides)


class _NotAskedError(Exception):
    """The budget is used up, or the judge is away: no more questions in this run."""


class _Desk:
    """Puts pairs to a judge in both orders, remembers rulings and counts what they cost."""

    def __init__(self, judge: Judge, config: JudgeConfig, kept: Answers) -> None:
        self._judge = judge
        self._config = config
        self._kept = kept
        self._lock = threading.Lock()
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.problem: str | None = None

    @property
    def cost(self) -> float:
        """Of this run, in `config.currency`."""
        prompt, completion = self._config.prompt_price, self._config.completion_price
        return (self.prompt_tokens * prompt + self.completion_tokens * completion) / 1e6

    def settle(self, pairs: Sequence[_Pair], on_progress: Progress) -> list[Outcome]:
        """The outcome of each pair, in the same order."""
        outcomes = []
        with ThreadPoolExecutor(max_workers=self._config.concurrency, thread_name_prefix="judge") as pool:
            for outcome in pool.map(self._settle, pairs):
                outcomes.append(outcome)
                on_progress(len(outcomes), len(pairs))
        return outcomes

    def _settle(self, pair: _Pair) -> Outcome:
        if pair.first.strip() == pair.second.strip():
            return Outcome.TIE
        try:
            forward = self._rule(Matchup(pair.messages, pair.first, pair.second))
            # One unreadable reply leaves the pair without an outcome: the other order is not paid for.
            backward = forward and self._rule(Matchup(pair.messages, pair.second, pair.first))
        except PromptRefused as error:
            _log.warning("a pair is left out: %s", error)
            return Outcome.UNSUITABLE
        except _NotAskedError:
            return Outcome.UNJUDGED
        first_speaks, second_speaks = speaks_to_judge(pair.first), speaks_to_judge(pair.second)
        return combine(forward, backward, first_speaks=first_speaks, second_speaks=second_speaks)

    def _rule(self, matchup: Matchup) -> Better | None:
        key = content_id(["judge", self._judge.name, list(render(matchup))])
        if not self._kept.has(key):
            self._kept.put(key, list(self._ask(matchup)))
        better: Better | None = self._kept.get(key)[0]
        return better

    def _ask(self, matchup: Matchup) -> Ruling:
        budget = self._config.budget
        with self._lock:
            if self.problem is not None or (budget is not None and self.cost >= budget):
                raise _NotAskedError
        try:
            ruling = self._judge.compare(matchup)
        except PromptRefused:
            raise
        except ServingError as error:
            with self._lock:
                self.problem = self.problem or str(error)
            raise _NotAskedError from error
        with self._lock:
            self.prompt_tokens += ruling.prompt_tokens
            self.completion_tokens += ruling.completion_tokens
        return ruling
