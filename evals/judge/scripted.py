"""The honest fake of a judge: it replies what a function says, read by the same rules as a real one's replies."""

from collections.abc import Callable
from dataclasses import dataclass, field

from evals.judge.base import Matchup, Ruling
from evals.judge.prompt import parse_verdict, render
from pipeline.clean.text import message_text
from pipeline.records import Message


@dataclass
class ScriptedJudge:
    """Takes a function from the messages that a judge gets to its reply; what that raises, it raises."""

    reply: Callable[[list[Message]], str]
    name: str = "scripted"
    asked: list[Matchup] = field(default_factory=list)

    def compare(self, matchup: Matchup) -> Ruling:
        self.asked.append(matchup)
        prompt = render(matchup)
        text = self.reply(prompt)
        # One token a character is as good a count as any: it is the same on every machine.
        return Ruling(parse_verdict(text), sum(len(message_text(message)) for message in prompt), len(text))
