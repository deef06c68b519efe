"""ChatGPT data export: the zip, its folder, or one of its files (conversations, message_feedback, model_comparisons).

A conversation is a tree: several answers under one question are regenerations, `current_node` is merely the branch that
was shown last, and the order of `children` is no order of time. Older feedback has no time of its own; the zip knows
when its message was written.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.collect.importers.chatgpt_turns import answer_of, tree_of
from pipeline.collect.importers.elements import read_each, read_elements
from pipeline.collect.importers.fields import key, member, members, text, texts
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.votes import thumb
from pipeline.records import FeedbackKind, Message

_PARTS = re.compile(r"(?:.*/)?(?:conversations(?:-\d+)?|message_feedback|model_comparisons)\.json")


@dataclass
class _Known:
    """What one file of the export tells about another."""

    wanted: set[str] = field(default_factory=set)
    """Rated messages whose feedback has no time."""
    times: dict[str, datetime] = field(default_factory=dict)
    users: set[str] = field(default_factory=set)

    @property
    def user(self) -> str:
        """Who exported; nobody when feedback of several users says that it is a workspace."""
        return next(iter(self.users)) if len(self.users) == 1 else ""


def read(source: Source, make: Make) -> Iterator[Item]:
    """Conversations first, then what was said about them."""
    known = _Known()
    try:
        parts = [part for part in source.parts if _PARTS.fullmatch(part)]
    except Exception as error:  # zipfile raises whatever the damage leads to
        yield Refusal("file", RefusalReason.UNREADABLE, f"no zip archive: {str(error)[:100]}")
        return
    if source.path.is_dir() or source.suffix == ".zip":
        if not parts:
            yield Refusal("file", RefusalReason.WRONG_FORM, "no conversations.json or message_feedback.json in it")
        for part in parts:
            if "message_feedback" in part:
                _look_ahead(source, part, known)
        for part in parts:
            for item in read_each(read_elements(source, part=part), lambda row: _one(row, make, known)):
                yield Refusal(f"{part}, {item.place}", item.reason, item.detail) if isinstance(item, Refusal) else item
    else:
        yield from read_each(read_elements(source), lambda row: _one(row, make, known))


def _look_ahead(source: Source, part: str, known: _Known) -> None:
    repaired = source.repaired
    for element in read_elements(source, part=part):
        if not isinstance(element, Refusal):
            if not element.value.get("create_time"):
                known.wanted.add(text(element.value, "id", "message_id"))
            known.users.add(text(element.value, "user_id"))
    source.repaired = repaired


def _one(row: dict[str, Any], make: Make, known: _Known) -> Iterator[Item]:
    if "mapping" in row:
        return _conversation(row, make, known)
    if "rating" in row:
        return _feedback(row, make, known)
    if "input" in row and "output" in row:
        return _comparison(row, make)
    raise Refused(RefusalReason.WRONG_FORM, "no conversation, no feedback, no comparison")


def _conversation(row: dict[str, Any], make: Make, known: _Known) -> Iterator[Item]:
    tree = tree_of(row)
    conversation = text(row, "conversation_id", "id") or key(row, "title")
    for node in tree.answers():
        try:
            message_id = text(node.raw, "id") or node.node_id
            parent = tree.nodes.get(node.parent or "")
            asked = parent.raw.get("create_time") if parent else None
            at = first_moment(make.zone, node.raw.get("create_time"), asked, row.get("create_time"))
            if at is not None and message_id in known.wanted:
                known.times[message_id] = at
            turn = Turn(
                messages=tree.prompt(node),
                at=at,
                model=text(member(node.raw, "metadata"), "model_slug"),
                conversation=conversation,
                user=known.user,
            )
            yield make.interaction(message_id, turn, answer_of(node))
        except Refused as refused:
            yield Refusal("", refused.reason, refused.detail)


def _feedback(row: dict[str, Any], make: Make, known: _Known) -> Iterator[Item]:
    message_id = key(row, "id", "message_id")
    at = first_moment(make.zone, row.get("create_time"), known.times.get(message_id))
    content = member(row, "content")
    common: dict[str, Any] = {"at": at, "user": text(row, "user_id"), "source_id": message_id}
    vote = thumb(row.get("rating"))
    yield make.feedback(message_id, FeedbackKind.THUMB, vote, reason=why(*texts(content, "tags")), **common)
    if comment := text(content, "text"):
        yield make.feedback(message_id, FeedbackKind.COMMENT, comment, **common)


_BETTER = {"new": ("new_turn", "original_turn"), "original": ("original_turn", "new_turn")}


def _comparison(row: dict[str, Any], make: Make) -> Iterator[Item]:
    """Two answers to one question, and which was better."""
    asked, output = member(row, "input"), member(row, "output")
    convo = member(asked, "prompt_convo")
    second = member(output, "feedback_step_2")
    verdict = text(second, "completion_comparison_rating") or text(member(output, "feedback_step_1"), "rating")
    prompt = _plain(members(convo, "messages"))
    at = first_moment(make.zone, row.get("create_time"))
    conversation = text(asked, "conversation_id") or key(row, "id")
    keys: dict[str, str] = {}
    for name in ("original_turn", "new_turn"):
        said = members(second, name)
        message: Message = {"role": "assistant", "content": "\n".join(str(m["content"]) for m in _plain(said))}
        keys[name] = (text(said[-1], "id") if said else "") or f"{key(row, 'id')}/{name}"
        model = text(member(said[-1], "metadata"), "model_slug") if said else ""
        turn = Turn(messages=prompt, at=at, model=model, conversation=conversation, user=text(row, "user_id"))
        yield make.interaction(keys[name], turn, Answer(message))
    if verdict not in _BETTER:
        reason = RefusalReason.DRAW if verdict == "same" else RefusalReason.UNKNOWN_VALUE
        yield Refusal("", reason, f"neither answer was better: {verdict[:40]!r}")
        return
    better, worse = (keys[name] for name in _BETTER[verdict])
    first = member(output, "feedback_step_1")
    yield make.feedback(
        better,
        FeedbackKind.CHOICE,
        make.over(worse),
        at,
        user=text(row, "user_id"),
        source_id=text(row, "id"),
        reason=why(*texts(first, "tags"), text(first, "critique_text")),
    )


def _plain(messages: list[dict[str, Any]]) -> list[Message]:
    nodes = tree_of({"mapping": {str(at): {"message": message} for at, message in enumerate(messages)}}).nodes
    return [node.message for node in nodes.values() if node.message is not None]
