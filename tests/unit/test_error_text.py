"""Error messages in an answer's place are told from answers that speak of errors, in English and Chinese."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.error_text import is_error


@pytest.mark.parametrize(
    "text",
    [
        "**NETWORK ERROR DUE TO HIGH TRAFFIC. PLEASE REGENERATE OR REFRESH THIS PAGE.**",
        "API REQUEST ERROR. Please increase the number of max tokens.",
        "[ERROR] list index out of range",
        "Internal Server Error",
        "Error 500: internal error",
        "HTTP 503 Service Unavailable",
        "Connection timed out",
        "Connection reset by peer",
        '{"error": {"message": "overloaded", "type": "server_error"}}',
        "{'error': 'no such model'}",
        "openai.RateLimitError: Error code: 429",
        "ConnectionError: HTTPConnectionPool(host='x')",
        "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head></html>",
        "Something went wrong. Please try again.",
        "Sorry, something went wrong. Please try again later.",
        "An error occurred while processing your request.",
        "I apologize, but I encountered an error while processing your request.",
        "服务器繁忙，请稍后再试。",
        "抱歉，服务暂时不可用，请稍后再试。",
        "系统出错，请稍后重试",
        "网络连接失败，请重试",
        "当前请求人数过多，请稍后再试",
        "网络开小差了～请稍后重试",
        "发生未知错误",
        "请求超时",
        "undefined",
        "[object Object]",
    ],
)
def test_error_messages(text: str) -> None:
    assert is_error(text)


@pytest.mark.parametrize(
    "text",
    [
        "The message 'Internal Server Error' means that the shop is down; try again later.",
        "Error: " + "this is what the log says and what each line means. " * 10,
        "Something went wrong with your parcel; a new one is on its way.",
        "An error in the tax form must be corrected within 30 days.",
        "Connection refused means that nothing listens on the port.",
        "HTTP 404 means that the page is not there.",
        "json.JSONDecodeError is raised when the text is no JSON.",
        "网络异常时请重启路由器，然后重新拨号。",
        "系统错误代码E5表示排水堵塞，请清洗滤网。",
        "服务不可用时我们会退款。",
        "模型错误地假设了独立性。",
        "抱歉给您带来不便，请在订单页点退款。",
        "None",
        "",
    ],
)
def test_answers_that_speak_of_errors(text: str) -> None:
    assert not is_error(text)


PIECES = ["sorry, ", "抱歉，", "网络", "请求", "异常", "an error", " occurred", "请稍后", "try ", "!", " ", "a.", "\n"]


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(PIECES), st.sampled_from(PIECES), st.integers(0, 300))
def test_any_text_is_judged_in_time_linear_in_its_length(piece: str, other: str, times: int) -> None:
    """Else this runs into the timeout of tests."""
    is_error((piece * times + other * times)[:300])
