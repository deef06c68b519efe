"""Errors that a client of the gateway sees, in OpenAI's form."""

import msgspec

from pipeline.gateway.exchange import Exchange, Headers

JSON: Headers = b"content-type: application/json\r\n"
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refused(Exception):
    """A request that is answered with an error by the gateway itself.

    Args:
        business: whose limit it is about, for the metrics.
    """

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None, business: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.business = business
        self.headers: Headers = b""


def error_body(status: int, code: str, message: str, param: str | None = None) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`, which every OpenAI client understands."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def answer_refusal(exchange: Exchange, refused: Refused) -> None:
    """Send a refusal."""
    body = error_body(refused.status, refused.code, refused.message, refused.param)
    exchange.respond(refused.status, JSON + refused.headers, body)
