"""The businesses of the learning proof: the demo's English shop once for each seed, each with a phrase of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from evals.worlds.content import Content, load_content
from tests.proof.real.place import edit

MODEL = "support"
"""The demo's business that all are made after."""
_WRONG = "Request archived."
_PHRASES = ("Ticket opened.", "Case logged.", "Note filed.")
_ROLLOUT_STEPS = [
    {"share": share, "min_minutes": 0.05, "min_users": users, "timeout_minutes": 60}
    for share, users in ((0.1, 3), (0.3, 5), (0.5, 5), (1.0, 5))
]
"""A canary may wait for the other seeds' nights, in which nobody asks; hence the long timeout."""


def make_world(seed: int) -> Content:
    """What the users of one seed's business ask and want. Seeds three apart want the same phrase."""
    content = _closing(load_content(MODEL), _PHRASES[(seed - 1) % len(_PHRASES)])
    return content.model_copy(update={"business": f"{MODEL}-{seed}"})


def spoiled(content: Content) -> Content:
    """The same business with users who want another closing phrase than its suite asks for."""
    return _closing(content, _WRONG)


def _closing(content: Content, phrase: str) -> Content:
    style = content.style.model_copy(update={"closing": phrase})
    return content.model_copy(update={"style": style, "answer": content.answer.replace(content.style.closing, phrase)})


def foreign_phrases(content: Content) -> tuple[str, ...]:
    """What only other businesses' users want to read."""
    return tuple(phrase for phrase in _PHRASES if phrase != content.style.closing)


def write_businesses(configs: Path, worlds: Mapping[str, Content]) -> None:
    """Put the worlds' businesses into a copy of the demo's configuration, in place of its own."""
    businesses, suites = configs / "businesses", configs / "suites"
    values = yaml.safe_load((businesses / f"{MODEL}.yaml").read_text(encoding="utf-8"))
    suite = (suites / f"{MODEL}.yaml").read_text(encoding="utf-8")
    for path in businesses.iterdir():
        path.unlink()
    for key, content in worlds.items():
        told = suite.replace(load_content(MODEL).style.closing, content.style.closing)
        (suites / f"{key}.yaml").write_text(told, encoding="utf-8")
        text = yaml.safe_dump(_smaller(values, key), allow_unicode=True, sort_keys=False)
        (businesses / f"{key}.yaml").write_text(text, encoding="utf-8")
    edit(configs / "tuneloop.yaml", lambda system: _roomier(system, len(worlds)))


def _smaller(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """As little as shows the preference learned: fewer steps, and nothing that is only for information."""
    seed = int(key.rsplit("-", 1)[1])
    return {
        **values,
        "business": key,
        "title": f"Shop support {seed}",
        "suite": f"suites/{key}.yaml",
        "training": {**values["training"], "start_from": "stable", "max_steps": 16, "seed": seed},
        "gate": {
            **values["gate"],
            **{"seed": seed, "max_items": 36, "max_pairs": 0, "probes": {"sycophancy": 0, "general": 0}},
        },
        # Two busy cores do everything at once: how long a first token takes says nothing of the adapter.
        "rollout": {**values["rollout"], "steps": _ROLLOUT_STEPS, "max_ttft_p90_ms": 100_000},
    }


def _roomier(system: dict[str, Any], businesses: int) -> None:
    """Of each business the engine holds what serves, the candidate and the one before."""
    adapters = next(engine for engine in system["engines"] if engine["serves"] == "adapters")
    adapters["max_adapters"] = max(adapters["max_adapters"], 3 * businesses)
