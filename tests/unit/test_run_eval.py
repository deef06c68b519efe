"""Asking two endpoints: fairly, politely, and never twice after a kill."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.endpoint import base_model
from evals.gate import decide
from evals.run import Endpoint, run_eval
from pipeline.config import GateConfig
from pipeline.errors import EngineUnavailable, ServingError
from pipeline.records import EvalItem, EvalResult, MissingReason, Verdict
from pipeline.serving.scripted import ScriptedEngine
from tests.builders import an_eval_item

OLD = Endpoint(url="http://old", model="support-v1")
NEW = Endpoint(url="http://new", model="support-v2", api_key="secret")
NO_PAUSES = (0.0, 0.0, 0.0)

Reply = Callable[[dict[str, Any]], httpx.Response]


class Engines:
    """An HTTP transport that answers each request with a function and remembers what it was asked."""

    def __init__(self, reply: Reply) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[httpx.Headers] = []
        self._reply = reply

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"data": []})
        body = json.loads(request.content) | {"host": request.url.host}
        self.asked.append(body)
        self.headers.append(request.headers)
        return self._reply(body)


def says(text: str | None, **message: Any) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"role": "assistant", "content": text} | message}]})


def echo(body: dict[str, Any]) -> httpx.Response:
    return says(f"{body['model']}: {body['messages'][-1]['content']}")


def ask(items: list[EvalItem], engines: Engines, work_dir: Path | None = None, **options: Any) -> EvalResult:
    settings: dict[str, Any] = {
        "business": "support",
        "max_tokens": 16,
        "seed": 7,
        "concurrency": 1,
        "pauses_s": NO_PAUSES,
    } | options
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


@pytest.mark.parametrize(
    ("hosts", "side", "scores"),
    [(("old", "new"), "both", (1, 1)), (("new",), "candidate", (0, 1)), (("old",), "baseline", (1, 0))],
)
def test_a_prompt_that_one_side_does_not_take_counts_for_neither(
    hosts: tuple[str, ...], side: str, scores: tuple[float, float]
) -> None:
    result = ask(questions(12), Engines(lambda body: too_long(body, hosts)))
    assert len(result.items) == 11
    (missing,) = result.missing
    assert (missing.item.item_id, missing.side, missing.reason) == ("q3", side, MissingReason.TOO_LONG)
    assert (missing.baseline, missing.candidate) == ({"unanswered": scores[0]}, {"unanswered": scores[1]})
    assert all(scored.baseline["unanswered"] == scored.candidate["unanswered"] == 0 for scored in result.items)


REFUSALS_OF_A_PROMPT = {400: MissingReason.REFUSED, 413: MissingReason.TOO_LONG, 422: MissingReason.REFUSED}
ANSWERED_OR_NOT = st.lists(st.tuples(*[st.sampled_from((200, *REFUSALS_OF_A_PROMPT))] * 2), min_size=1, max_size=12)


@settings(max_examples=20)
@given(ANSWERED_OR_NOT, st.integers(1, 4))
def test_every_item_is_compared_or_missing_for_both_whatever_is_refused(
    statuses: list[tuple[int, int]], concurrency: int
) -> None:
    def reply(body: dict[str, Any]) -> httpx.Response:
        number = int(body["messages"][-1]["content"].removeprefix("Question ").removesuffix("?"))
        status = statuses[number][body["host"] == "new"]
        return echo(body) if status == 200 else httpx.Response(status)

    result = ask(questions(len(statuses)), Engines(reply), concurrency=concurrency)
    whole = {f"q{number}" for number, sides in enumerate(statuses) if sides == (200, 200)}
    assert {scored.item.item_id for scored in result.items} == whole
    assert len(result.items) + len(result.missing) == len(statuses)
    for missing in result.missing:
        before, after = statuses[int(missing.item.item_id[1:])]
        assert missing.side == ("both" if 200 not in (before, after) else "baseline" if after == 200 else "candidate")
        assert missing.reason is REFUSALS_OF_A_PROMPT[before if after == 200 else after]


def test_two_models_of_one_engine_are_never_asked_at_the_same_time() -> None:
    engines = Engines(echo)
    client = httpx.Client(transport=httpx.MockTransport(engines))
    other = Endpoint(url=OLD.url, model="base")
    run_eval(questions(9), OLD, other, business="support", max_tokens=4, seed=0, concurrency=4, client=client)
    assert [body["model"] for body in engines.asked] == ["support-v1"] * 9 + ["base"] * 9


def test_a_request_that_fails_in_all_tries_leaves_its_item_out_and_no_other() -> None:
    def failing(body: dict[str, Any]) -> httpx.Response:
        return httpx.Response(500) if body["messages"][-1]["content"] == "Question 1?" else echo(body)

    engines = Engines(failing)
    result = ask(questions(3), engines)
    assert [scored.item.item_id for scored in result.items] == ["q0", "q2"]
    assert [(one.side, one.reason) for one in result.missing] == [("both", MissingReason.FAILED)]
    tries = [body for body in engines.asked if body["messages"][-1]["content"] == "Question 1?"]
    assert len(tries) == 2 * len(NO_PAUSES)


def test_a_refused_prompt_is_told_from_one_that_is_too_long_and_asked_again_by_the_next_run(tmp_path: Path) -> None:
    refusing = Engines(lambda body: httpx.Response(422, json={"error": {"message": "no such role"}}))
    result = ask(questions(2), refusing, tmp_path)
    assert [(one.side, one.reason) for one in result.missing] == [("both", MissingReason.REFUSED)] * 2
    assert len(ask(questions(2), Engines(echo), tmp_path).items) == 2


def test_an_item_with_an_image_is_not_asked_and_counted() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    seen = an_eval_item("seen", messages=({"role": "user", "content": [{"type": "text", "text": "What?"}, image]},))
    text = an_eval_item("text", messages=({"role": "user", "content": [{"type": "text", "text": "What?"}]},))
    engines = Engines(lambda body: says("This."))
    result = ask([seen, text], engines)
    assert [scored.item.item_id for scored in result.items] == ["text"]
    assert [(one.item.item_id, one.side, one.reason) for one in result.missing] == [
        ("seen", "both", MissingReason.UNSUPPORTED)
    ]
    assert len(engines.asked) == 2
    assert (result.missing[0].baseline, result.missing[0].candidate) == ({}, {})


def test_no_question_at_all_promotes_nothing() -> None:
    decision = decide(ask([], Engines(echo)), GateConfig())
    assert (decision.verdict, decision.asked) == (Verdict.INCONCLUSIVE, 0)


def test_an_engine_that_fails_request_after_request_is_given_up() -> None:
    engines = Engines(lambda body: httpx.Response(500) if body["host"] == "new" else echo(body))
    with pytest.raises(EngineUnavailable, match=r"http://new: model 'support-v2' failed 5 requests in a row"):
        ask(questions(40), engines)


def test_an_engine_that_dies_half_way_is_named_and_the_rest_is_asked_when_it_is_back(tmp_path: Path) -> None:
    with ScriptedEngine("support-v1") as old, ScriptedEngine("support-v2") as new:

        def compare() -> EvalResult:
            sides = (Endpoint(url=old.url, model="support-v1"), Endpoint(url=new.url, model="support-v2"))
            return run_eval(
                questions(8),
                *sides,
                business="support",
                max_tokens=16,
                seed=7,
                concurrency=2,
                work_dir=tmp_path,
                pauses_s=NO_PAUSES,
            )

        calls = itertools.count()

        def dies(model: str, messages: list[dict[str, Any]]) -> str:
            if next(calls) == 3:
                new.stop()
            return "Alive."

        new.answer = dies
        with pytest.raises(EngineUnavailable, match=f"{new.url}: model 'support-v2': no answer .* is the engine up"):
            compare()
        (file,) = tmp_path.iterdir()
        kept = len(file.read_text().splitlines())
        assert 3 <= kept < 16

        new.answer = lambda model, messages: "Alive."
        new.start()
        before = len(old.requests) + len(new.requests)
        result = compare()
        assert (len(result.items), result.missing) == (8, ())
        assert len(old.requests) + len(new.requests) - before == 16 - kept


def test_an_endpoint_that_nobody_listens_on_is_one_clear_error() -> None:
    with ScriptedEngine() as gone:
        nowhere = Endpoint(url=gone.url, model="m")
    with pytest.raises(EngineUnavailable, match=f"{nowhere.url}: model 'm': no answer .ConnectError. in 3 tries"):
        run_eval(
            questions(1),
            nowhere,
            nowhere,
            business="support",
            max_tokens=4,
            seed=0,
            concurrency=1,
            pauses_s=NO_PAUSES,
        )


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
    text = "".join(message["content"] + "\n" for message in body["messages"])
    usage = {"prompt_tokens": len(text)}
    if "prompt_logprobs" not in body:
        return httpx.Response(200, json={"choices": [{"message": {"content": "x"}}], "usage": usage})
    likely = -0.5 if body["host"] == "new" else -2.0
    entries = [{str(ord(char)): {"logprob": likely if char == "a" else -1.0}} for char in text[1:]]
    return httpx.Response(200, json={"choices": [{"message": {"content": "x"}}], "prompt_logprobs": [None, *entries]})


def test_pairs_are_scored_over_the_tokens_in_which_they_differ() -> None:
    engines = Engines(scored_prompt)
    (scored,) = ask(questions(1, reference="xaa", rejected="xbb"), engines).items
    assert scored.baseline["preference_margin"] == pytest.approx(-2.0)
    assert scored.candidate["preference_margin"] == pytest.approx(1.0)
    assert (scored.baseline["preference_accuracy"], scored.candidate["preference_accuracy"]) == (0, 1)
    conversations = [body for body in engines.asked if "prompt_logprobs" in body]
    assert len(conversations) == 4
    assert all(body["add_generation_prompt"] is False for body in conversations)


def test_an_accepted_answer_is_scored_by_its_own_tokens_alone_with_or_without_a_rejected_one() -> None:
    for rejected in ("xbb", None):
        (scored,) = ask(questions(1, reference="xaa", rejected=rejected), Engines(scored_prompt)).items
        assert scored.baseline["accepted_likelihood"] == pytest.approx((-1 - 2 - 2 - 1) / 4)
        assert scored.candidate["accepted_likelihood"] == pytest.approx((-1 - 0.5 - 0.5 - 1) / 4)
        assert ("preference_margin" in scored.candidate) is (rejected is not None)


def test_an_engine_that_counts_no_tokens_leaves_only_that_score_out() -> None:
    def uncounted(body: dict[str, Any]) -> httpx.Response:
        return scored_prompt(body) if "prompt_logprobs" in body else echo(body)

    (scored,) = ask(questions(1, reference="aa", rejected="bb"), Engines(uncounted)).items
    assert "accepted_likelihood" not in scored.candidate
    assert "preference_margin" in scored.candidate


def test_a_log_probability_that_is_no_number_is_one_clear_error() -> None:
    def broken(body: dict[str, Any]) -> httpx.Response:
        if "prompt_logprobs" not in body:
            return echo(body)
        return httpx.Response(200, content=b'{"prompt_logprobs": [null, {"5": {"logprob": NaN}}]}')

    with pytest.raises(ServingError, match="http://old: model 'support-v1' gave a log-probability that is no number"):
        ask(questions(1, reference="aa"), Engines(broken))


def test_an_accepted_tool_call_has_no_log_probability_and_pairs_come_first() -> None:
    called = an_eval_item("called", tools=({"type": "function"},), reference="[]")
    items = [called, *questions(2, reference="aa"), an_eval_item("pair", reference="aa", rejected="bb")]
    result = ask(items, Engines(scored_prompt), max_pairs=2)
    measured = {scored.item.item_id for scored in result.items if "accepted_likelihood" in scored.candidate}
    assert measured == {"q0", "pair"}


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


def models(*listed: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, json={"data": listed})


def test_an_endpoint_without_a_name_is_the_base_model_that_its_engine_serves() -> None:
    served = models({"id": "support-v1", "parent": "base"}, {"id": "base", "parent": None})
    client = httpx.Client(transport=httpx.MockTransport(lambda request: served))
    assert base_model(client, Endpoint(url="http://old", model="")).model == "base"


@pytest.mark.parametrize(
    ("response", "told"),
    [
        (httpx.Response(401, json={"error": "Unauthorized"}), r"http://old: no list of models .* \(status 401\)"),
        (httpx.Response(200, text="<html>"), "http://old: no list of models"),
        (httpx.Response(200, json={"data": 7}), "http://old: no list of models"),
        (models(), r"http://old serves 0 base models"),
        (models({"id": "a"}, {"id": "b"}), r"http://old serves 2 base models \(a, b\); name one: URL#MODEL"),
    ],
)
def test_an_engine_that_does_not_say_what_it_serves_is_one_clear_error(response: httpx.Response, told: str) -> None:
    client = httpx.Client(transport=httpx.MockTransport(lambda request: response))
    with pytest.raises(ServingError, match=told):
        base_model(client, Endpoint(url="http://old", model=""))
