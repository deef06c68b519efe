"""Which answers teach nothing: errors, cut streams, refusals, left-over templates, messages without sense.

`faults_before_scrubbing` needs the text as the engine wrote it; only there can a placeholder that the *model* wrote
(`<PERSON_1>`, a lesson learned too well) be told from those that this pipeline puts in afterwards.
"""

import re
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from pipeline.clean.error_text import is_error
from pipeline.clean.text import CODE, message_text
from pipeline.records import Choice, DropReason, FeedbackKind, Interaction, Message, Signal, StreamEnd

_HEAD = 240
"""Characters at the start of an answer in which a refusal or an error says what it is."""
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

_DO = (
    r"(?:assist|help (?:you )?with|provide|comply|fulfil|answer (?:that|this|your)|engage|discuss|respond to|create"
    r"|generate|write|share|support that|do that|process (?:that|this) request)"
)
_TUN = r"(?:提供|回答|协助|帮助|帮您|讨论|满足|生成|回应|参与|给出|执行|处理[这该您]|完成[这该您])"
_REFUSAL = re.compile(
    r"\b(?:i|we)(?:['’](?:m|re)| am| are)?(?: (?:really |truly )?sorry,? (?:but )?i)?"
    r" (?:can['’]?t|cannot|can not|could not|couldn['’]t|won['’]t|will not|unable to|not able to)"
    rf" (?:(?:directly|really|just|actually|personally) )?{_DO}"
    r"|\bas an? (?:ai|artificial intelligence)(?: language)?(?: model| assistant)?\b[^.]{0,60}"
    r"(?:can['’]?t|cannot|unable|not able|do(?:n['’]t| not)|not (?:appropriate|possible))"
    r"|\b(?:that|this|it) (?:goes|is) against my (?:guidelines|programming|policy)"
    r"|\bi (?:must|have to) (?:decline|refuse)"
    r"|作为(?:一个|一名)?\s?(?:AI|人工智能)[^。]{0,30}(?:无法|不能|不会|没有)"
    r"|我(?:很抱歉[，,]?)?(?:暂时|目前|恐怕)?(?:无法|不能|不便|没办法|没法|不可以)(?:为您|给您|向您|对此|直接|继续)?"
    rf"{_TUN}|(?:对不起|抱歉)[，,][^。]{{0,12}}(?:无法|不能){_TUN}",
    re.IGNORECASE,
)

_FIELD = (
    r"(?:(?:first|last|full|user|customer|company|your|their|sender|recipient)[ _])*(?:name|surname|person|author"
    r"|phone(?:[ _]number)?|mobile|e-?mail(?:[ _]address)?|address|location|date|city|company|order[ _](?:number|id)"
    r"|account[ _]number|ssn|card|id_card|secret|url|insert[^\]>]{0,30})(?:_\d{1,3})?"
)
_WHOSE = r"(?:your|my|customer|user|company|sender|recipient)"
_FIELD_ZH = (
    r"(?:您的|你的|客户|用户|收件人|联系人|公司)?"
    r"(?:姓名|名字|名称|电话|手机号?|手机号码|邮箱|地址|日期|公司名?称?|订单号|身份证号?码?)"
)
_LEFT_OVER = re.compile(
    rf"\{{\{{\s*[\w.\- ]{{1,40}}\s*\}}\}}|\$\{{[\w.]{{1,40}}\}}|\{{%?\s*(?i:{_FIELD})\s*%?\}}"
    rf"|%(?=[A-Z_]+%)(?i:{_FIELD})%"
    rf"|<(?=[A-Z_\d ]+>)(?i:{_FIELD})>|<(?i:{_WHOSE}[ _]{_FIELD})>|\[(?i:{_FIELD})\](?!\()"
    rf"|\[(?:REDACTED|MASKED|ANONYMI[SZ]ED)\]|[【\[［<＜{{]{_FIELD_ZH}[】\]］>＞}}](?!\()",
)


def is_refusal(text: str) -> bool:
    """Whether an answer declines to help (English or Chinese), by what it says at its start."""
    return bool(_REFUSAL.search(text[:_HEAD]))


def left_over_placeholder(text: str, prompt: str) -> bool:
    """Whether a template's field (`{{name}}`, `${name}`, `<NAME>`, `[PHONE_NUMBER]`, `【姓名】`) was left in a text.

    Not in code, and not one that the prompt itself names: then it is what the talk is about.
    """
    return any(field not in prompt for field in _LEFT_OVER.findall(CODE.sub("", text)))


def delivery_fault(interaction: Interaction) -> tuple[DropReason, str] | None:
    """What the way in which the answer came says against it."""
    if interaction.status >= 400:
        return DropReason.ERROR_ANSWER, f"status {interaction.status}"
    if interaction.stream_end is not StreamEnd.COMPLETE:
        return DropReason.INCOMPLETE, interaction.stream_end.value
    return None


def message_fault(messages: JsonValue) -> str | None:
    """Why a request's messages cannot be learned from; None for any order of roles that people really use."""
    if not isinstance(messages, list) or not messages:
        return "no messages"
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            return f"message {at} is {type(message).__name__}, not an object"
        if message.get("role") not in _ROLES:
            return f"message {at} has no known role"
        content = message.get("content")
        if not isinstance(content, str | list) and not (content is None and _may_be_silent(message)):
            return f"message {at} has no content"
        if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
            return f"message {at} has a content part that is no object"
    if not any(isinstance(m, dict) and m.get("role") == "user" and _asks(m.get("content")) for m in messages):
        return "no user message with anything in it"
    return None


def faults_before_scrubbing(
    answer: Message, edited: str | None, prompt: str, signals: Iterable[Signal], choice: Choice
) -> tuple[DropReason, str] | None:
    """What is wrong with an answer, or with its edited text where there is one: that is what would be learned."""
    text = message_text(answer)
    target = text if edited is None else edited
    if is_error(text):
        return DropReason.ERROR_ANSWER, "the answer is an error message"
    if (not text.strip() and not answer.get("tool_calls")) or (edited is not None and not edited.strip()):
        return DropReason.EMPTY_SIDE, "answer" if edited is None or edited.strip() else "edit"
    if "\ufffd" in target:
        return DropReason.BAD_ENCODING, "a character was lost"
    if left_over_placeholder(target, prompt):
        return DropReason.PLACEHOLDER, "edit" if edited is not None else "answer"
    if is_refusal(target):
        return DropReason.REFUSAL, "edit" if edited is not None else "answer"
    if choice.finish_reason == "length" and edited is None and any(map(_likes, signals)):
        return DropReason.TRUNCATED_ANSWER, "cut by max_tokens, and liked: it would teach not to stop"
    return None


def _likes(signal: Signal) -> bool:
    match signal.kind:
        case FeedbackKind.THUMB:
            return signal.value == "up"
        case FeedbackKind.OUTCOME:
            return signal.value == "passed"
        case FeedbackKind.RATING:
            return isinstance(signal.value, int | float) and signal.value >= 4
        case FeedbackKind.CHOICE:
            return True
        case _:
            return False


def _asks(content: JsonValue) -> bool:
    return bool(content.strip() if isinstance(content, str) else content)


def _may_be_silent(message: Mapping[str, JsonValue]) -> bool:
    """A tool call needs no words, and a tool may return nothing."""
    return bool(message.get("tool_calls") or message.get("function_call")) or message.get("role") in (
        "tool",
        "function",
    )
