"""The real vLLM renders prompts as training does; one that does not is refused before anything is trained."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.errors import EngineUnavailable, ServingError, TrainingError
from pipeline.train.template import check_template, engine_tokenizer
from tests.builders import a_preference, a_source, an_sft

pytestmark = pytest.mark.engine

TALK = (
    {"role": "system", "content": "You work for a web shop."},
    {"role": "user", "content": "Where is my parcel?"},
    {"role": "assistant", "content": "On its way."},
    {"role": "user", "content": "怎么退款？  \n🙂 <|im_end|>"},
)
EXAMPLES = (
    an_sft(a_source(), "Hi", "Hello."),
    an_sft(a_source(), "Hi", "Hello.").model_copy(update={"prompt": TALK}),
    a_preference(a_source(), "How do I return the shoes?", "Open the page.", "No idea."),
)


@pytest.fixture(scope="module")
def rendering(base_model_path) -> Any:
    from pipeline.train.tokenizer import load_rendering

    return load_rendering(base_model_path, 512)


def test_training_and_engine_render_prompts_alike(rendering, engines):
    check_template(rendering, EXAMPLES, engine_tokenizer(engines.base_url, engines.model_id, ""))


def test_another_template_is_named_with_the_row_and_the_place(rendering, engines):
    class Shouting:
        def __getattr__(self, name: str) -> Any:
            return getattr(rendering.tokenizer, name)

        def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
            return rendering.tokenizer.apply_chat_template(conversation, **kwargs).replace("parcel", "PARCEL")

    ids = engine_tokenizer(engines.base_url, engines.model_id, "")
    with pytest.raises(TrainingError, match=r"row 1 \(interaction i1\): .* from token \d+ on .*chat_template.jinja"):
        check_template(replace(rendering, tokenizer=Shouting()), EXAMPLES, ids)


def test_an_engine_that_is_away_or_refuses_is_told_apart(engines):
    with pytest.raises(EngineUnavailable, match="is it running"):
        engine_tokenizer("http://127.0.0.1:9", "m", "")(EXAMPLES[0])
    with pytest.raises(ServingError, match="does not tokenise: 404"):
        engine_tokenizer(engines.base_url, "no-such-model", "")(EXAMPLES[0])
