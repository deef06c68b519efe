"""Asking two endpoints: fairly, politely, and never twice after a kill."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from evals.run import Endpoint, run_eval
from pipeline.errors import EngineUnavailable, ServingError
from pipeline.records import EvalItem, EvalResult
from tests.builders import an_eval_item

OLD = Endpoint(url="http://old", model="support-v1")
NEW = Endpoint(url="http://new", model="support-v2", api_key="secret")

Reply = Callable[[dict[str, Any]], httpx.Response]


class Engines:
    """An HTTP transport that answers each request with a function and remembers what it was asked."""

    def __init__(self, reply: Reply) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[httpx.Headers] = []
        self._reply = reply

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) | {"host": request.url.host}
        self.asked.append(body)
        self.headers.append(request.headers)
        return self._reply(body)


def says(text: str | None, **message: Any) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"role": "assistant", "content": text} | message}]})


def echo(body: dict[str, Any]) -> httpx.Response:
    return says(f"{body['model']}: {body['messages'][-1]['content']}")


def ask(items: list[EvalItem], engines: Engines, work_dir: Path | None = None, **options: Any) -> EvalResult:
    settings: dict[str, Any] = {"business": "support", "max_tokens": 16, "seed": 7, "concurrency": 1} | options
    client = httpx.Client(transport=httpx.MockTransport(engines))
    return run_eval(items, OLD, NEW, work_dir=work_dir, client=client, **settings)


def questions(count: int, **fields: Any) -> list[EvalItem]:
    return [
        an_eval_item(f"q{n}", f"u{n}", messages=({"role": "user", "content": f"Question {n}?"},), **fields)
        for n in range(count)
    ]


def test_both_get_the_same_prompts_and_decoding_by_turns() -> None:
    engines = Engines(echo)
    result = ask(questions(4), engines)
    assert [body["host"] for body in engines.asked] == ["old", "new", "new", "old", "old", "new", "new", "old"]
    for body in engines.asked:
        assert (body["temperature"], body["seed"], body["max_tokens"]) == (0, 7, 16)
    asked = {host: [b["messages"] for b in engines.asked if b["host"] == host] for host in ("old", "new")}
    assert asked["old"] == asked["new"]
    assert result.items[2].baseline_answer == "support-v1: Question 2?"
    assert result.items[2].candidate_answer == "support-v2: Question 2?"
    assert (result.baseline, result.candidate) == ("support-v1", "support-v2")


def test_only_the_endpoint_with_a_key_is_sent_it() -> None:
    engines = Engines(echo)
    ask(questions(1), engines)
    keys = {
        body["host"]: headers.get("authorization") for body, headers in zip(engines.asked, engines.headers, strict=True)
    }
    assert keys == {"old": None, "new": "Bearer secret"}


def test_two_engines_of_one_model_are_told_apart_by_their_urls() -> None:
    client = httpx.Client(transport=httpx.MockTransport(Engines(echo)))
    other = Endpoint(url="http://new", model=OLD.model)
    result = run_eval(questions(1), OLD, other, business="support", max_tokens=4, seed=0, concurrency=1, client=client)
    assert (result.baseline, result.candidate) == ("support-v1 at http://old", "support-v1 at http://new")


def test_a_tool_call_is_an_answer() -> None:
    call = {"id": "random", "function": {"name": "find_order", "arguments": '{"id": 1}'}}
    engines = Engines(lambda body: says(None, tool_calls=[call]))
    tools = ({"type": "function", "function": {"name": "find_order"}},)
    result = ask(questions(1, tools=tools), engines)
    assert engines.asked[0]["tools"] == list(tools)
    assert json.loads(result.items[0].candidate_answer) == [call["function"]]


def test_half_a_character_is_mended() -> None:
    engines = Engines(lambda body: httpx.Response(200, content=b'{"choices":[{"message":{"content":"ok \\ud83d"}}]}'))
    assert ask(questions(1), engines).items[0].candidate_answer == "ok \ufffd"


def test_a_busy_engine_is_asked_again() -> None:
    replies = iter([httpx.Response(503), says("So."), says("So.")])
    assert ask(questions(1), Engines(lambda body: next(replies))).items[0].baseline_answer == "So."


REFUSALS = [
    httpx.Response(401, json={"error": "Unauthorized"}),
    httpx.Response(404, text="no"),
    httpx.Response(200, json=[]),
    httpx.Response(200, text="hello"),
]


@pytest.mark.parametrize("response", REFUSALS)
def test_a_refusal_of_the_engine_is_one_clear_error(response: httpx.Response) -> None:
    with pytest.raises(ServingError, match=r"http://old: model 'support-v1'") as caught:
        ask(questions(1), Engines(lambda body: response))
    assert not isinstance(caught.value, EngineUnavailable)
    assert "Question" not in str(caught.value)


def too_long(body: dict[str, Any], hosts: tuple[str, ...]) -> httpx.Response:
    if body["host"] in hosts and body["messages"][-1]["content"] == "Question 3?":
        return httpx.Response(400, json={"error": {"message": "maximum context length is 2048"}})
    return echo(body)


def test_a_prompt_that_neither_takes_is_left_out() -> None:
    result = ask(questions(12), Engines(lambda body: too_long(body, ("old", "new"))))
    assert len(result.items) == 11


def test_a_prompt_that_only_one_takes_stops_the_comparison() -> None:
    with pytest.raises(ServingError, match="http://new: model 'support-v2' refused a prompt that the other"):
        ask(questions(12), Engines(lambda body: too_long(body, ("new",))))


def test_too_many_refused_prompts_stop_the_comparison() -> None:
    with pytest.raises(ServingError, match="1 of 5 prompts were refused"):
        ask(questions(5), Engines(lambda body: too_long(body, ("old", "new"))))


def test_what_was_answered_before_a_kill_is_not_asked_again(tmp_path: Path) -> None:
    def dies(body: dict[str, Any]) -> httpx.Response:
        if len(first.asked) > 5:
            return httpx.Response(403)
        return echo(body)

    first = Engines(dies)
    with pytest.raises(ServingError):
        ask(questions(4), first, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes() + b'{"key": "half a li')  # as a kill leaves it

    second = Engines(echo)
    resumed = ask(questions(4), second, tmp_path)
    assert len(second.asked) == 3
    assert resumed == ask(questions(4), Engines(echo))
    third = Engines(echo)
    assert ask(questions(4), third, tmp_path) == resumed
    assert third.asked == []


def test_other_decoding_and_other_businesses_share_no_answers(tmp_path: Path) -> None:
    ask(questions(2), Engines(echo), tmp_path)
    for options in ({"max_tokens": 8}, {"seed": 8}, {"business": "kefu"}):
        engines = Engines(echo)
        ask(questions(2), engines, tmp_path, **options)
        assert len(engines.asked) == 4


def test_progress_counts_every_request_once() -> None:
    seen: list[tuple[int, int]] = []
    ask(questions(3), Engines(echo), concurrency=3, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 6) for done in range(7)]


def scored_prompt(body: dict[str, Any]) -> httpx.Response:
    """Each character of the conversation is a token; the new model finds `a` likelier."""
    if "prompt_logprobs" not in body:
        return echo(body)
    text = "".join(message["content"] + "\n" for message in body["messages"])
    likely = -0.5 if body["host"] == "new" else -2.0
    entries = [{str(ord(char)): {"logprob": likely if char == "a" else -1.0}} for char in text[1:]]
    return httpx.Response(200, json={"choices": [{"message": {"content": "x"}}], "prompt_logprobs": [None, *entries]})


def test_pairs_are_scored_over_the_tokens_in_which_they_differ() -> None:
    engines = Engines(scored_prompt)
    (scored,) = ask(questions(1, reference="xaa", rejected="xbb"), engines).items
    assert scored.baseline["preference_margin"] == pytest.approx(-2.0)
    assert scored.candidate["preference_margin"] == pytest.approx(1.0)
    assert (scored.baseline["preference_accuracy"], scored.candidate["preference_accuracy"]) == (0, 1)
    assert all(body["add_generation_prompt"] is False for body in engines.asked if "prompt_logprobs" in body)


def test_no_more_pairs_than_asked_for() -> None:
    result = ask(questions(5, reference="aa", rejected="bb"), Engines(scored_prompt), max_pairs=2)
    assert sum("preference_margin" in scored.candidate for scored in result.items) == 2


def test_an_engine_without_prompt_log_probabilities_says_what_to_do() -> None:
    with pytest.raises(ServingError, match="max_pairs"):
        ask(questions(1, reference="aa", rejected="bb"), Engines(echo))


def test_without_any_reference_the_length_in_service_is_the_usual_one() -> None:
    engines = Engines(lambda body: says("x" * (40 if body["host"] == "new" else 20)))
    (scored,) = ask(questions(1), engines).items
    assert scored.baseline["length_ratio"] == 0
    assert scored.candidate["length_ratio"] == pytest.approx(0.693, abs=1e-3)
