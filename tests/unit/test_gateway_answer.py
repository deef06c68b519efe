"""Reading an answer back from its bytes."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.gateway.answer import Answer, read_json_answer, read_stream
from pipeline.gateway.recorder import judge_end
from pipeline.records import Choice, StreamEnd
from tests.gateway_stub import USAGE_CHUNK, completion, delta, sse


def texts(answer: Answer) -> list[object]:
    return [choice["message"]["content"] for choice in answer.choices]


def reasons(answer: Answer) -> list[object]:
    return [choice["finish_reason"] for choice in answer.choices]


def case(shared: Path, name: str) -> bytes:
    return (shared / "data/cases/sse" / name).read_bytes()


def test_usage_only_last_chunk(shared: Path) -> None:
    answer = read_stream(case(shared, "D-16_usage_only_last_chunk.sse"))
    assert (texts(answer), reasons(answer)) == (["您好，已为您查询。"], ["stop"])
    assert (answer.prompt_tokens, answer.completion_tokens, answer.done) == (12, 8, True)


def test_comments_are_no_content(shared: Path) -> None:
    answer = read_stream(case(shared, "D-17_comments_keepalive.sse"))
    assert (texts(answer), reasons(answer)) == (["好的"], ["stop"])


def test_a_character_cut_between_writes_is_whole_again(shared: Path) -> None:
    parts = [json.loads(line) for line in case(shared, "D-18_utf8_split.parts.jsonl").splitlines()]
    answer = read_stream(b"".join(bytes.fromhex(part["hex"]) for part in parts))
    assert texts(answer) == ["修复方法：重启路由器🌟"]


def test_a_cut_stream_keeps_its_partial_text(shared: Path) -> None:
    answer = read_stream(case(shared, "D-19_cut_without_finish.sse"))
    assert texts(answer) == ["退款流程分三步：第一步打开"]
    assert judge_end(StreamEnd.COMPLETE, 200, answer, is_stream=True) is StreamEnd.UPSTREAM_CUT


def test_several_answers_are_told_apart_by_index(shared: Path) -> None:
    answer = read_stream(case(shared, "D-21_n2_interleaved.sse"))
    assert (texts(answer), reasons(answer)) == (["A1A2A3", "B1B2"], ["length", "stop"])


def test_recorded_streams_and_documents_of_other_tools(shared: Path) -> None:
    wire = shared / "data/openai_wire"
    chunks = (wire / "tensorzero_chat_completions_streaming_example.jsonl").read_bytes().splitlines()
    answer = read_stream(b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks))
    assert texts(answer) == ["Santa Claus is not real"] or str(texts(answer)[0]).startswith("Santa Claus")
    called = read_json_answer((wire / "tensorzero_chat_completions_function_example.json").read_bytes())
    assert called.choices[0]["message"]["tool_calls"][0]["function"]["name"] == "output"
    assert (called.prompt_tokens, called.completion_tokens) == (57, 17)
    for recorded in json.loads((wire / "dataflywheel_recorded_chat_completion.json").read_bytes()):
        assert read_json_answer(json.dumps(recorded["response"]).encode()).has_token


def test_tool_calls_in_pieces() -> None:
    def call(index: int, arguments: str, **more: object) -> dict[str, object]:
        return {"index": index, "function": {"arguments": arguments, **more}}

    stream = sse(
        delta(None, role="assistant", tool_calls=[call(0, "", name="q") | {"id": "c1", "type": "function"}]),
        delta(None, tool_calls=[call(0, '{"id"')]),
        delta(None, tool_calls=[call(1, "", name="r") | {"id": "c2", "type": "function"}]),
        delta(None, tool_calls=[call(0, ":77}"), call(1, "{}")]),
        delta(finish="tool_calls"),
    )
    message = read_stream(stream).choices[0]["message"]
    assert message["content"] is None
    assert [(one["id"], one["function"]) for one in message["tool_calls"]] == [
        ("c1", {"name": "q", "arguments": '{"id":77}'}),
        ("c2", {"name": "r", "arguments": "{}"}),
    ]


def test_tool_calls_without_index_and_with_repeated_names() -> None:
    stream = sse(
        delta(None, tool_calls=[{"id": "c1", "function": {"name": "q", "arguments": "{"}}]),
        delta(None, tool_calls=[{"id": "c1", "function": {"name": "q", "arguments": "}"}}]),
        delta(None, tool_calls=[{"id": "c2", "function": {"name": "q", "arguments": "{}"}}]),
    )
    calls = read_stream(stream).choices[0]["message"]["tool_calls"]
    assert [one["function"] for one in calls] == [{"name": "q", "arguments": "{}"}] * 2


@pytest.mark.parametrize(
    ("stream", "end"),
    [
        (sse(delta("a"), delta(finish="stop")), StreamEnd.COMPLETE),
        (sse(delta("a"), delta(finish="stop"), done=False), StreamEnd.COMPLETE),
        (sse(delta("a")), StreamEnd.ENGINE_ABORT),
        (sse(delta("a"), delta(finish="abort")), StreamEnd.ENGINE_ABORT),
        (sse(delta("a"), done=False), StreamEnd.UPSTREAM_CUT),
        (sse(delta("a"), {"error": {"message": "x"}}), StreamEnd.UPSTREAM_ERROR),
        (b'event: error\ndata: {"message": "x"}\n\n', StreamEnd.UPSTREAM_ERROR),
        (b"", StreamEnd.UPSTREAM_CUT),
    ],
)
def test_how_streams_end(stream: bytes, end: StreamEnd) -> None:
    assert judge_end(StreamEnd.COMPLETE, 200, read_stream(stream), is_stream=True) is end


def test_leaving_before_the_first_token_is_told_from_leaving_later() -> None:
    opened = read_stream(b": ping\n\n" + sse(delta("", role="assistant"), done=False))
    begun = read_stream(sse(delta("a"), done=False))
    ends = [judge_end(StreamEnd.CLIENT_ABORT, 200, answer, is_stream=True) for answer in (opened, begun)]
    assert ends == [StreamEnd.CLIENT_ABORT_BEFORE_FIRST_TOKEN, StreamEnd.CLIENT_ABORT]


def test_completions_have_text() -> None:
    body = {"choices": [{"index": 0, "text": "fine", "finish_reason": "length"}]}
    assert texts(read_json_answer(json.dumps(body).encode())) == ["fine"]
    assert texts(read_stream(sse(*({"choices": [{"index": 0, "text": part}]} for part in "fine")))) == ["fine"]


def test_half_a_surrogate_pair_from_an_engine_is_mended() -> None:
    assert texts(read_json_answer(json.dumps(completion("好的 \ud83d")).encode())) == ["好的 \ufffd"]


@given(st.binary(max_size=400))
def test_any_bytes_give_an_answer(data: bytes) -> None:
    for answer in (read_json_answer(data), read_stream(data), read_stream(b"data: " + data + b"\n\n")):
        assert isinstance(answer, Answer)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda v: st.lists(v, max_size=3)
)
PART = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(-1, 2) | VALUES,
        "text": VALUES,
        "finish_reason": VALUES,
        "delta": st.dictionaries(st.sampled_from(["role", "content", "refusal", "tool_calls", "x"]), VALUES) | VALUES,
        "message": st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), VALUES) | VALUES,
    },
)


CHUNK = st.fixed_dictionaries({}, optional={"choices": st.lists(PART | VALUES, max_size=2), "usage": VALUES})


@settings(max_examples=50)
@given(st.lists(CHUNK, max_size=3))
def test_odd_chunks_give_choices_that_can_be_stored(chunks: list[object]) -> None:
    answers = [read_stream(sse(*chunks)), *(read_json_answer(json.dumps(chunk).encode()) for chunk in chunks)]
    for answer in answers:
        for choice in answer.choices:
            Choice.model_validate(choice)


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=8)), min_size=1), st.sampled_from(["\n", "\r\n", "\r"]))
def test_pieces_add_up_to_the_text(pieces: list[tuple[int, str]], end: str) -> None:
    clean = [(index, text.encode("utf-8", "replace").decode()) for index, text in pieces]
    stream = "".join(f"data: {json.dumps(delta(text, index=index))}{end}{end}" for index, text in clean)
    answer = read_stream(stream.encode())
    expected = {index: "".join(text for other, text in clean if other == index) for index, _ in clean}
    assert {choice["index"]: choice["message"]["content"] for choice in answer.choices} == expected


def typical(text: str | None, index: int, finish: str | None, arguments: str) -> dict[str, object]:
    call = {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]} if arguments else {}
    return delta(text, index=index, finish=finish, **call)


TYPICAL = st.builds(
    typical,
    st.none() | st.text(max_size=5),
    st.integers(0, 2),
    st.sampled_from([None, "stop", "abort"]),
    st.text(max_size=3),
)


@pytest.mark.parametrize("calls", [None, "none", [7], [{"id": "c1"}], {}])
def test_calls_after_a_whole_message_are_read_whatever_it_says_of_calls(calls: object) -> None:
    whole = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": calls}}]}
    added = delta(None, tool_calls=[{"index": 3, "id": "c9", "function": {"name": "look", "arguments": "{}"}}])
    (choice,) = read_stream(sse(whole, added)).choices
    assert choice["message"]["tool_calls"][-1]["id"] == "c9"


@given(st.lists(TYPICAL | CHUNK | st.just(USAGE_CHUNK), max_size=6), st.booleans(), st.integers(0, 40))
def test_a_sound_stream_read_at_once_is_what_reading_line_by_line_gives(
    chunks: list[object], done: bool, cut: int
) -> None:
    stream = sse(*chunks, done=done)
    stream = stream[: len(stream) - cut] if cut else stream
    assert read_stream(stream) == read_stream(b": hello\n\n" + stream)
