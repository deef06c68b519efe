"""Examples become the ids that an engine would see, or are left out with a reason."""

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import TrainingError
from pipeline.records import DropReason, PreferenceExample, SftExample
from pipeline.train.rows import Rendering, as_rendered
from tests.builders import a_preference, a_source, an_sft, an_unpaired

TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}"
    "<e>\n{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
START, END = 0x110000, 0x110001


class CharacterTokenizer:
    """One token a character, and two special ones."""

    bos_token_id = START
    eos_token_id = END

    def __init__(self, template: str = TEMPLATE) -> None:
        self._template = jinja2.Environment().from_string(template)

    def apply_chat_template(self, conversation, **kwargs):
        assert kwargs.pop("tokenize") is False
        return self._template.render(messages=conversation, **kwargs)

    def encode(self, text, *, add_special_tokens):
        assert not add_special_tokens
        return [ord(c) for c in text.replace("<s>", chr(0xE000)).replace("<e>", chr(0xE001))]

    @staticmethod
    def decode(ids):
        return "".join(map(chr, ids)).replace(chr(0xE000), "<s>").replace(chr(0xE001), "<e>")


STOP = 0xE001
text = CharacterTokenizer.decode


def rendering(max_length: int = 10_000, template: str = TEMPLATE) -> Rendering:
    return Rendering(CharacterTokenizer(template), frozenset({STOP}), max_length)


def conversation(*turns: tuple[str, str], answer: str = "So.") -> SftExample:
    prompt = tuple({"role": role, "content": content} for role, content in turns)
    return SftExample(prompt=prompt, completion=({"role": "assistant", "content": answer},), source=a_source())


def test_prompt_is_what_the_engine_feeds_and_answer_ends_with_the_turn():
    (row,) = rendering().sft([an_sft(a_source(weight=0.5), "怎么退款", "请到订单页。")]).rows
    assert text(row.prompt) == "<s>user\n怎么退款<e>\n<s>assistant\n"
    assert text(row.completion) == "请到订单页。<e>"
    assert row.weight == 0.5


def test_both_answers_of_a_pair_follow_one_prompt():
    (row,) = rendering().pairs([a_preference(a_source(), "Hi", "good", "bad")]).rows
    assert (text(row.chosen), text(row.rejected)) == ("good<e>", "bad<e>")
    assert text(row.prompt) == "<s>user\nHi<e>\n<s>assistant\n"


def test_votes_keep_their_sign():
    rows = rendering().votes([an_unpaired(a_source(), True), an_unpaired(a_source(), False, "How?", "No.")]).rows
    assert [row.label for row in rows] == [True, False]


def test_tool_turns_without_content_are_rendered_as_the_engine_does():
    call = {"id": "c1", "type": "function", "function": {"name": "q", "arguments": '{"id": 77}'}}
    example = SftExample(
        prompt=(
            {"role": "user", "content": "查订单 77"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": ""},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "已发货"}]},
        ),
        completion=({"role": "assistant", "content": "已发货。"},),
        source=a_source(),
    )
    (row,) = rendering().sft([example]).rows
    assert "None" not in text(row.prompt)
    assert text(row.prompt).count('[q {"id": 77}]') == 2
    assert "<s>tool\n已发货<e>" in text(row.prompt)
    assert text(row.completion) == "已发货。<e>"


def test_a_template_that_writes_none_for_an_absent_value_costs_the_row_only():
    template = TEMPLATE.replace("{{ m.content }}", "{{ m.content }}{{ m.get('name') }}")
    found = rendering(template=template).sft([an_sft(a_source())])
    assert found.rows == ()
    assert found.dropped == {DropReason.BAD_MESSAGES: 1}


def test_the_word_none_of_a_user_is_no_mistake():
    assert len(rendering().sft([an_sft(a_source(), "None of it works", "None? Reboot.")]).rows) == 1


def test_a_template_that_raises_costs_the_row_only():
    template = "{% if messages[0].role == 'assistant' %}{{ missing.role }}{% endif %}" + TEMPLATE
    strange = conversation(("assistant", "您好"), ("user", "在吗"))
    found = rendering(template=template).sft([strange, an_sft(a_source())])
    assert (len(found.rows), found.dropped) == (1, {DropReason.BAD_MESSAGES: 1})


def test_neighbours_of_one_role_are_kept():
    (row,) = rendering().sft([conversation(("assistant", "您好"), ("user", "在吗"), ("user", "我要改地址"))]).rows
    assert text(row.prompt).count("<s>user") == 2


@pytest.mark.parametrize("answer", ["", None])
def test_an_empty_answer_teaches_nothing(answer):
    example = an_sft(a_source()).model_copy(update={"completion": ({"role": "assistant", "content": answer},)})
    assert rendering().sft([example]).dropped == {DropReason.EMPTY_SIDE: 1}


def test_a_pair_whose_sides_render_alike_is_dropped():
    pair = a_preference(a_source(), chosen="same", rejected="same")
    assert rendering().pairs([pair]).dropped == {DropReason.IDENTICAL: 1}


def test_a_turn_of_another_role_is_no_answer():
    example = an_sft(a_source()).model_copy(update={"completion": ({"role": "user", "content": "So."},)})
    assert rendering().sft([example]).dropped == {DropReason.BAD_MESSAGES: 1}


def test_oldest_turns_go_first_and_the_system_prompt_stays():
    example = conversation(("system", "Be brief."), ("user", "a" * 50), ("assistant", "b" * 50), ("user", "last"))
    found = rendering(max_length=80).sft([example])
    assert text(found.rows[0].prompt) == "<s>system\nBe brief.<e>\n<s>user\nlast<e>\n<s>assistant\n"
    assert found.shortened == 1


def test_a_conversation_never_begins_with_the_result_of_a_tool():
    example = conversation(("user", "a" * 50), ("assistant", "call"), ("tool", "7"), ("user", "b"))
    (row,) = rendering(max_length=60).sft([example]).rows
    assert text(row.prompt) == "<s>user\nb<e>\n<s>assistant\n"


def test_what_cannot_be_shortened_is_too_long():
    pairs = [a_preference(a_source(), "p" * 400, "是。", "否。"), a_preference(a_source(), "p", "c" * 5000, "r" * 30)]
    found = rendering(max_length=256).pairs(pairs)
    assert (found.rows, found.dropped) == ((), {DropReason.TOO_LONG: 2})


def test_a_template_without_end_of_turn_is_refused():
    with pytest.raises(TrainingError, match="end-of-turn"):
        rendering(template=TEMPLATE.replace("<e>", "")).sft([an_sft(a_source())])


def test_a_template_that_renders_answered_prompts_differently_is_refused():
    with pytest.raises(TrainingError, match="rendered differently"):
        rendering(template="{{ messages | length }}" + TEMPLATE).sft([an_sft(a_source())])


roles = st.sampled_from(["system", "user", "assistant", "tool"])
contents = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=20))


@given(
    turns=st.lists(st.tuples(roles, contents), max_size=6),
    answers=st.tuples(contents, contents),
    limit=st.integers(min_value=16, max_value=120),
)
def test_every_row_fits_and_has_something_to_learn_on_each_side(turns, answers, limit):
    prompt = tuple({"role": role, "content": content} for role, content in turns)
    chosen, rejected = (({"role": "assistant", "content": answer},) for answer in answers)
    pair = PreferenceExample(prompt=prompt, chosen=chosen, rejected=rejected, source=a_source())
    found = rendering(limit).pairs([pair])
    assert len(found.rows) + sum(found.dropped.values()) == 1
    for row in found.rows:
        for side in (row.chosen, row.rejected):
            assert len(row.prompt) + len(side) <= limit
            assert len(side) >= 2
            assert side[-1] == STOP
        assert row.chosen != row.rejected
        assert text(row.prompt).endswith("<s>assistant\n")


def test_rendering_leaves_the_stored_message_alone():
    call = {"id": "c", "type": "function", "function": {"name": "q", "arguments": "{broken"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert as_rendered(message) == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert message["content"] is None
