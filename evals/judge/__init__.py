"""Which of two answers is better, said by a model whose agreement with people is measured before its word counts."""

from evals.judge.base import Judge, Matchup, Ruling
from evals.judge.doubt import doubts
from evals.judge.endpoint import EndpointJudge
from evals.judge.run import judge_answers
from evals.judge.scripted import ScriptedJudge
from evals.judge.words import describe

__all__ = ["EndpointJudge", "Judge", "Matchup", "Ruling", "ScriptedJudge", "describe", "doubts", "judge_answers"]
