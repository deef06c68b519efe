"""Which of two answers is better, said by a model whose agreement with people is measured before its word counts."""

from evals.judge.base import Judge, Matchup, Ruling
from evals.judge.doubt import doubts, explain
from evals.judge.endpoint import EndpointJudge
from evals.judge.run import judge_answers
from evals.judge.scripted import ScriptedJudge

__all__ = ["EndpointJudge", "Judge", "Matchup", "Ruling", "ScriptedJudge", "doubts", "explain", "judge_answers"]
