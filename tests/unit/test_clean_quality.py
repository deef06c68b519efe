"""Answers that teach nothing."""

import json
from pathlib import Path

import pytest

from pipeline.clean.quality import (
    delivery_fault,
    faults_before_scrubbing,
    is_refusal,
    left_over_placeholder,
    message_fault,
)
from pipeline.records import Choice, DropReason, Signal, StreamEnd
from tests.builders import a_signal, an_interaction


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that.",
        "I am unable to provide that.",
        "I cannot help you with this request.",
        "As an AI language model, I don't have access to your orders.",
        "We won't be able to. I must decline.",
        "抱歉，我无法提供这类信息。",
        "作为一个人工智能语言模型，我不能浏览网页。",
        "很抱歉，我不能回答这个问题。",
    ],
)
def test_refusals(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry that your order is late. You can cancel it on the order page.",
        "The order can't be cancelled after it was sent.",
        "抱歉给您带来不便，请在订单页点退款。",
        "该商品不能退货。",
        "If the app cannot connect, restart it.",
        "",
    ],
)
def test_no_refusals(text: str) -> None:
    assert not is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "Hello {{name}}, I am {{ author }}",
        "您好 ${user.name}",
        "Dear {customer_name},",
        "Hello %NAME%",
        "{% name %}",
        "Dear <NAME>",
        "Dear <your name>",
        "call [PHONE_NUMBER]",
        "[Your Name]",
        "[Insert name here]",
        "[REDACTED] said so",
        "【姓名】您好",
        "我是[您的姓名]",
        "我是＜姓名＞",
        "I am <PERSON_1>",
    ],
)
def test_left_over_placeholders(text: str) -> None:
    assert left_over_placeholder(text, "Who are you?")


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("Write {{name}} there.", "How do I print {{name}} in Jinja?"),
        ("Use `{{ name }}`.", "How?"),
        ("See [email](mailto:x) and <b>", "How?"),
        ("【温馨提示】请稍候", "?"),
        ("<address>12 Main Street</address>", "How?"),
        ("[地址](https://shop.example)", "?"),
        ("f(x) = {x}, 100% sure, {a: 1}", "How?"),
        ("    print({name})", "How?"),
    ],
)
def test_placeholders_that_belong_there(text: str, prompt: str) -> None:
    assert not left_over_placeholder(text, prompt)


def test_placeholders_of_public_data_are_found(shared: Path) -> None:
    rows = json.loads((shared / "data/llamafactory/identity.json").read_text())
    marked = [row for row in rows if "{{" in row["output"]]
    assert marked
    assert all(left_over_placeholder(row["output"], row["instruction"]) for row in marked)


def test_delivery() -> None:
    assert delivery_fault(an_interaction()) is None
    assert delivery_fault(an_interaction(status=502, stream_end="upstream_error")) == (
        DropReason.ERROR_ANSWER,
        "status 502",
    )
    for end in set(StreamEnd) - {StreamEnd.COMPLETE}:
        assert delivery_fault(an_interaction(stream_end=end)) == (DropReason.INCOMPLETE, end.value)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        [{"role": "system", "content": "你是客服"}],
        [{"role": "user", "content": "Hi"}, {"role": "assistant"}],
        ["Hi!", {"role": "user", "content": "Hi"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": " \n"}],
        [{"role": "user", "content": []}],
        [{"role": "human", "content": "Hi"}],
        [{"role": "user", "content": ["Hi"]}],
    ],
)
def test_messages_without_sense(messages: list[object] | None) -> None:
    assert message_fault(messages)  # type: ignore[arg-type]


def test_real_orders_of_roles_are_accepted() -> None:
    order = ["assistant", "user", "user", "assistant", "assistant", "user"]
    assert message_fault([{"role": role, "content": "x"} for role in order]) is None
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": ""}
    assert message_fault([{"role": "user", "content": "x"}, call, result]) is None


def fault(answer: str | None, edited: str | None = None, *signals: Signal, finish: str = "stop") -> DropReason | None:
    message = {"role": "assistant", "content": answer}
    found = faults_before_scrubbing(
        message, edited, "q", signals, Choice(index=0, message=message, finish_reason=finish)
    )
    return found[0] if found else None


def test_what_would_be_learned_decides() -> None:
    refusal = "I'm sorry, but I can't assist with that."
    assert fault(refusal) is DropReason.REFUSAL
    assert fault(refusal, "Click refund.") is None
    assert fault("Click refund.", refusal) is DropReason.REFUSAL
    assert fault("好\ufffd") is DropReason.BAD_ENCODING
    assert fault("好\ufffd", "好的") is None
    assert fault("Dear <NAME>", "Dear friend") is None
    assert fault("x", "  ") is DropReason.EMPTY_SIDE
    assert fault(None) is DropReason.EMPTY_SIDE
    assert fault("[ERROR] no", "Click refund.") is DropReason.ERROR_ANSWER


def test_a_liked_answer_that_was_cut_would_teach_not_to_stop() -> None:
    for kind, value in (("thumb", "up"), ("rating", 5), ("outcome", "passed"), ("choice", {"over": "i2"})):
        assert fault("One two", None, a_signal(kind, value), finish="length") is DropReason.TRUNCATED_ANSWER
    assert fault("One two", None, a_signal("thumb", "down"), finish="length") is None
    assert fault("One two", "One.", a_signal("thumb", "up"), finish="length") is None


def test_a_tool_call_needs_no_words() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    assert faults_before_scrubbing(message, None, "q", (), Choice(index=0, message=message)) is None
