"""The gateway's descriptions are OpenAPI, name what is served, and agree with the records."""

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from pipeline.gateway.admin import AdminApi
from pipeline.gateway.app import DataApi
from pipeline.gateway.auth import KeyRing
from pipeline.gateway.feedback import MAX_COMMENT, MAX_EVENTS, MAX_TEXT
from pipeline.gateway.inbox import Inbox
from pipeline.gateway.links import MAX_DAYS
from pipeline.gateway.openapi import ADMIN_API, DATA_API, openapi_json
from pipeline.records import Arm, FeedbackKind, Interaction, Route, Routes, StreamEnd, Target, Timings

METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


def document(path: Path) -> Any:
    return json.loads(openapi_json(path))


def operations(path: Path) -> dict[tuple[str, str], Any]:
    return {
        (method.upper(), name): operation
        for name, methods in document(path)["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    }


@pytest.mark.parametrize("path", [DATA_API, ADMIN_API])
def test_a_description_is_valid_openapi(path: Path) -> None:
    OpenAPIV31SpecValidator(document(path)).validate()
    names = [operation["operationId"] for operation in operations(path).values()]
    assert len(names) == len(set(names))


def test_every_path_and_method_is_described_and_every_described_one_is_served() -> None:
    inbox = Inbox(KeyRing(), None, None, None, None, None, None)
    data = DataApi(KeyRing(), None, inbox, None, None, None, None)
    assert data.operations() == set(operations(DATA_API))
    assert AdminApi("key", KeyRing(), None, None, None).operations() == set(operations(ADMIN_API))


def test_enums_and_limits_are_those_of_the_code() -> None:
    schemas = document(DATA_API)["components"]["schemas"]
    assert set(schemas["Kind"]["enum"]) == set(FeedbackKind)
    assert set(schemas["Arm"]["enum"]) == set(Arm)
    shown = schemas["Interaction"]["properties"]
    assert set(shown["stream_end"]["enum"]) == set(StreamEnd)
    assert set(shown["timings"]["properties"]) == set(Timings.model_fields)
    added = {"finish_reasons", "feedback", "feedback_searched"}
    assert set(shown) - added < set(Interaction.model_fields)
    for of in ("Feedback", "LinkedFeedback"):
        kinds = {one["properties"]["kind"]["const"]: one["properties"]["value"] for one in schemas[of]["oneOf"]}
        assert set(kinds) == set(FeedbackKind)
        assert (kinds["edit"]["maxLength"], kinds["comment"]["maxLength"]) == (MAX_TEXT, MAX_COMMENT)
        assert schemas[of]["properties"]["reason"]["maxLength"] == MAX_COMMENT
    assert schemas["LinkRequest"]["properties"]["days"]["maximum"] == MAX_DAYS
    post = operations(DATA_API)["POST", "/v1/feedback"]["requestBody"]["content"]["application/json"]["schema"]
    assert post["anyOf"][1]["maxItems"] == MAX_EVENTS
    described = document(ADMIN_API)["components"]["schemas"]
    for record in (Routes, Route, Target):
        assert set(described[record.__name__]["properties"]) == set(record.model_fields)
