"""Edits that put the same site, or the same words, into different answers.

Honest users insert the same text too: many of them mend the same mistake, and the business has its own links and
phrases. So the same words count once for each *situation* (a question and an answer unlike those counted before), and
a site or a text that the business's own answers hold as often as the edits do, or its system prompts hold, is its own.
A link counts once for each interaction: what a link leads to is worth a look even when it is put where it belongs.
And what more than a fifth of the users do (for texts: of the users who edit) is no poison but the very thing to learn,
such as how the business wants its answers to end; one user alone is never "the users".
Sixteen letters (eight in Chinese, Japanese) that unrelated edits have in common are not there by chance, which is why
a count is enough here. A text without a link must also come from the same users again and again: a group of accounts
that paste it once or twice each is not told from users who agree.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pipeline.clean.text import is_system, message_text, normalise
from pipeline.collect.poison.acts import FEW_PEERS, Act, Suspicion, alike, flat, messages_of, name_of, runs_of
from pipeline.config import PoisonConfig
from pipeline.records import FeedbackKind, QuarantineReason, RatedInteraction

_SITE = re.compile(r"(?:https?://|www\.)(?:www\.)?([^\s/?#:<>()\[\]{}\"'`,;，。；：、）】》]+)", re.IGNORECASE)
_URL = re.compile(_SITE.pattern + r"[^\s<>()\[\]{}\"'，；。、）】》]*", re.IGNORECASE)
_LETTERS = 16
_LARGEST_SHARE = 0.2
_EDITS_A_USER = 3
_RUNS_OF_A_TEXT = 16
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")


@dataclass(frozen=True)
class _Edit:
    """An edit and what is new in it."""

    act: Act
    sites: frozenset[str]
    texts: frozenset[str]
    """Runs of characters that neither the answer nor the question has."""


def inserts(acts: Sequence[Act], rated: Sequence[RatedInteraction], config: PoisonConfig) -> list[Suspicion]:
    """Edits that share a foreign site, then those of the rest that share a foreign text."""
    edits = [_edit(act) for act in acts if act.signal.kind is FeedbackKind.EDIT and isinstance(act.signal.value, str)]
    least = config.min_signals
    sites = _shared(((site, edit) for edit in edits for site in edit.sites), least)
    own = _said_by_the_business([site for site, _ in sites], rated, _substrings)
    found, settled = [], set[str]()
    users = len({_who(act) for act in acts})
    for site, sharing in sites:
        if site not in config.own_sites and len(sharing) > own[site] and _by_few(sharing, users):
            found.append(_suspicion(QuarantineReason.SAME_LINK, "a link to the same site", site, sharing))
            settled.update(edit.act.event_id for edit in sharing)
    editors = len({_who(edit.act) for edit in edits})
    rest = [edit for edit in edits if edit.act.event_id not in settled]
    return found + _same_texts(rest, rated, least, editors if editors >= FEW_PEERS else users)


def _same_texts(edits: Sequence[_Edit], rated: Sequence[RatedInteraction], least: int, users: int) -> list[Suspicion]:
    """The most shared text first; an edit stands in one finding only."""
    texts = _candidates(_shared(((text, edit) for edit in edits for text in edit.texts), least), least)
    own = _said_by_the_business([text for text, _ in texts], rated, _runs_among)
    found, settled = [], set[str]()
    for text, sharing in texts:
        rest = [edit for edit in sharing if edit.act.event_id not in settled]
        pasted = _by_few(sharing, users) and _again_and_again(rest)
        if len(rest) > own[text] and pasted and _situations(rest, least) >= least:
            found.append(_suspicion(QuarantineReason.SAME_TEXT, f"the same {len(text)} characters", text, rest))
            settled.update(edit.act.event_id for edit in rest)
    return found


def _candidates(texts: Iterable[tuple[str, list[_Edit]]], least: int) -> list[tuple[str, list[_Edit]]]:
    """Texts of enough situations. A long text gives many runs that are shared by the same edits: a few of them do."""
    runs: Counter[frozenset[str]] = Counter()
    enough: dict[frozenset[str], bool] = {}
    kept = []
    for text, sharing in texts:
        members = frozenset(edit.act.event_id for edit in sharing)
        runs[members] += 1
        if members not in enough:
            enough[members] = _situations(sharing, least) >= least
        if enough[members] and runs[members] <= _RUNS_OF_A_TEXT:
            kept.append((text, sharing))
    return kept


def _edit(act: Act) -> _Edit:
    assert isinstance(act.signal.value, str)
    before = f"{act.answer}\n{act.question}"
    sites = _sites(act.signal.value) - _sites(before)
    known = f"{flat(act.answer)}\n{flat(act.question)}"
    runs = _runs_that_say_something(flat(_URL.sub(" ", act.signal.value)))
    return _Edit(act, sites, frozenset(run for run in runs if run not in known))


def _runs_that_say_something(text: str) -> set[str]:
    """All runs of sixteen letters; an ideograph says as much as two, so that a text of both is one text."""
    if text.isascii():
        return {text[start : start + _LETTERS] for start in range(len(text) - _LETTERS + 1)}
    weights = [2 if char == "字" else 1 for char in _WIDE.sub("字", text)]
    runs: set[str] = set()
    end = weight = 0
    for start, own in enumerate(weights):
        while end < len(text) and weight < _LETTERS:
            weight += weights[end]
            end += 1
        if weight < _LETTERS:
            break
        runs.add(text[start:end])
        weight -= own
    return runs


def _runs_among(texts: frozenset[str], whole: str) -> Iterable[str]:
    """Which of the runs stand in a text: a run is as long wherever it stands, so it is one of the text's own."""
    return texts & _runs_that_say_something(whole)


def _substrings(texts: frozenset[str], whole: str) -> Iterable[str]:
    return [text for text in texts if text in whole]


def _sites(text: str) -> frozenset[str]:
    return frozenset(site.rstrip(".!-").casefold() for site in _SITE.findall(normalise(text)))


def _shared(pairs: Iterable[tuple[str, _Edit]], least: int) -> list[tuple[str, list[_Edit]]]:
    """What enough edits share, the most shared first."""
    shared: dict[str, list[_Edit]] = defaultdict(list)
    for what, edit in pairs:
        shared[what].append(edit)
    often = [(what, edits) for what, edits in shared.items() if len(edits) >= least]
    return sorted(often, key=lambda pair: (-len(pair[1]), pair[0]))


def _situations(edits: Iterable[_Edit], enough: int) -> int:
    """How many of the edits are about questions and answers that are each unlike the others'; counts no further than
    `enough`."""
    seen: list[tuple[frozenset[str], frozenset[str]]] = []
    for edit in edits:
        question, answer = runs_of(flat(edit.act.question)), runs_of(flat(edit.act.answer))
        if not any(alike(question, q) or alike(answer, a) for q, a in seen):
            seen.append((question, answer))
            if len(seen) == enough:
                break
    return len(seen)


def _said_by_the_business(
    texts: Sequence[str], rated: Sequence[RatedInteraction], held_by: Callable[[frozenset[str], str], Iterable[str]]
) -> dict[str, float]:
    """How often answers hold each of the texts, unless their user wrote it before; infinity where a system prompt
    does.

    Args:
        held_by: which of the texts a longer one holds.
    """
    said, wanted = dict.fromkeys(texts, 0.0), frozenset(texts)
    systems: set[str] = set()
    for one in rated if texts else ():
        messages = messages_of(one.interaction)
        systems.update(message_text(message) for message in messages if is_system(message))
        answer = flat("\n".join(message_text(choice.message) for choice in one.interaction.choices))
        held = list(held_by(wanted, answer))
        asked = flat("\n".join(map(message_text, messages))) if held else ""
        for text in held:
            said[text] += text not in asked
    for system in map(flat, sorted(systems)):
        said.update((text, math.inf) for text in held_by(wanted, system))
    return said


def _by_few(edits: Iterable[_Edit], users: int) -> bool:
    sharing = len({_who(edit.act) for edit in edits})
    return sharing == 1 or sharing <= _LARGEST_SHARE * users


def _again_and_again(edits: Sequence[_Edit]) -> bool:
    """Whether the same users do it over and over. Many who do it once or twice each, about one kind of question, are
    how people say which page or phrase belongs there."""
    return len(edits) >= _EDITS_A_USER * len({_who(edit.act) for edit in edits})


def _who(act: Act) -> str:
    """Strangers are not one person."""
    return act.actor or f"nobody {act.interaction.interaction_id}"


def _suspicion(reason: QuarantineReason, what: str, text: str, edits: Sequence[_Edit]) -> Suspicion:
    users = {_who(edit.act) for edit in edits}
    evidence = (
        f"{len(edits)} edits by {len(users)} users insert {what} ({name_of(text)}), which the business's own answers "
        "hold less often"
    )
    return Suspicion(reason, evidence, tuple(edit.act for edit in edits))
