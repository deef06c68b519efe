"""The descriptions of the gateway's APIs. They are written by hand, as YAML; clients get them as JSON."""

import json
from functools import cache
from pathlib import Path

import yaml

DATA_API = Path(__file__).with_name("openapi.yaml")
ADMIN_API = Path(__file__).with_name("openapi-admin.yaml")


@cache
def openapi_json(path: Path) -> bytes:
    """An OpenAPI document. The first call reads YAML, for some tens of milliseconds: make it in a thread."""
    return json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")), ensure_ascii=False).encode()
