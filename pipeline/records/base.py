"""What all records share: immutability, canonical JSON, content hashes."""

import hashlib
import json
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Message: TypeAlias = dict[str, JsonValue]
"""One chat message exactly as the client or the engine wrote it: role, content, tool_calls and whatever else."""

BusinessKey = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    """Base of all records."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: the same value gives the same text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_id(value: object) -> str:
    """SHA-256 (64 hex digits) over the canonical JSON of a JSON-able value."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()
