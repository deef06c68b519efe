"""The judge on pairs of a version in shadow: no personal data reaches it, and every pair counts once."""

from evals.answers import Answers
from evals.judge import ScriptedJudge
from evals.judge.shadow import judge_pairs, without_personal_data
from pipeline.clean.pii.patterns import PatternDetector
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii_config import PiiConfig
from pipeline.config import JudgeConfig
from pipeline.events.shadows import ShadowPair
from pipeline.records import Message
from tests.builders import a_shadow, an_interaction
from tests.judging import answers_in, verdict

CONFIG = JudgeConfig(url="http://judge", model="m")
RULES = Rules(PiiConfig(), "en")
MAIL = "ann.lee@example.org"


def pair(name: str, served: str | None, shadow: str | None, prompt: str = "How do I pay?") -> ShadowPair:
    return ShadowPair(an_interaction(name, prompt=prompt, answer=served), a_shadow(name, answer=shadow))


def longer(prompt: list[Message]) -> str:
    """Prefers the longer answer."""
    first, second = answers_in(prompt)
    return verdict("A" if len(first) > len(second) else "B")


def test_each_pair_is_judged_in_both_orders_and_what_is_no_text_by_nobody() -> None:
    pairs = [
        pair("i1", "By card.", "By card, or in cash at the door."),
        pair("i2", "By card, or in cash at the door.", "By card.", prompt="How may I pay?"),
        pair("i3", "By card.", "By card."),
        pair("i4", "By card.", None),
        pair("i5", None, "By card."),
    ]
    judge = ScriptedJudge(longer)
    judging = judge_pairs(
        pairs, judge, CONFIG, detector=PatternDetector(RULES), rules=RULES, kept=Answers(None), confidence=0.95
    )
    assert judging is not None
    assert (judging.answers.wins, judging.answers.losses, judging.answers.ties) == (1, 1, 1)
    assert judging.answers.total == 3
    assert len(judge.asked) == 4
    assert judging.agreement is None


def test_personal_data_goes_to_no_judge_and_keeps_its_place_in_question_and_answers() -> None:
    (item,) = without_personal_data(
        [pair("i1", f"Write to {MAIL}.", f"It went to {MAIL}!", prompt=f"I am {MAIL}")], PatternDetector(RULES), RULES
    )
    told = (str(item.item.messages[0]["content"]), item.baseline_answer, item.candidate_answer)
    assert told == ("I am <EMAIL_1>", "Write to <EMAIL_1>.", "It went to <EMAIL_1>!")


def test_what_cannot_be_scrubbed_is_left_out() -> None:
    def broken(texts: object) -> list[list[object]]:
        raise RuntimeError("no model")

    assert without_personal_data([pair("i1", "By card.", "In cash.")], broken, RULES) == []  # type: ignore[arg-type]


def test_without_a_pair_there_is_no_verdict() -> None:
    judge, detector = ScriptedJudge(longer), PatternDetector(RULES)
    told = judge_pairs((), judge, CONFIG, detector=detector, rules=RULES, kept=Answers(None), confidence=0.95)
    assert told is None
