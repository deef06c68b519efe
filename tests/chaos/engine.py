"""A scripted engine as a process: `python -m tests.chaos.engine --name one --port N --token-ms 40`.

Its answers begin with its own name and the digest of the weights that they come from, so that users can tell.
"""

import argparse
import hashlib
import threading
from typing import Any

from pipeline.serving.scripted import ScriptedEngine

BASE_CONTENT = "base"
_WORDS = (8, 12, 16, 24, 60)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.engine", description="A scripted engine.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model-id", default="base")
    parser.add_argument("--token-ms", type=float, default=40.0, help="between two words of an answer")
    given = parser.parse_args()

    def answer(model: str, messages: list[dict[str, Any]]) -> str:
        content = engine.digest(model)[:12] or BASE_CONTENT
        question = str(messages[-1].get("content"))
        words = _WORDS[hashlib.sha256(question.encode()).digest()[0] % len(_WORDS)]
        return " ".join([given.name, content, *["word"] * words])

    engine = ScriptedEngine(given.model_id, answer, token_delay_s=given.token_ms / 1000, port=given.port)
    with engine:
        threading.Event().wait()


if __name__ == "__main__":
    main()
