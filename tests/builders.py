"""Records for tests: sensible defaults, and any field by name."""

from datetime import UTC, datetime
from typing import Any

from pipeline.records import (
    Adapter,
    Choice,
    CleanRecord,
    EvalItem,
    EvalResult,
    Feedback,
    Interaction,
    MissingItem,
    MissingReason,
    ModelVersion,
    PreferenceExample,
    RatedInteraction,
    RolloutReport,
    ScoredItem,
    SftExample,
    ShadowAnswer,
    Side,
    Signal,
    SnapshotManifest,
    Source,
    UnpairedExample,
    content_id,
)

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def an_interaction(
    interaction_id: str = "i1", *, prompt: str = "How?", answer: str | None = "So.", **fields: Any
) -> Interaction:
    """One question of one user, answered; `answer=None` means that no answer came."""
    messages = [{"role": "user", "content": prompt}]
    values: dict[str, Any] = {
        "interaction_id": interaction_id,
        "business": "support",
        "session": "s1",
        "session_known": True,
        "user_key": "u1",
        "user_group": "g00",
        "arm": "stable",
        "share": 0.0,
        "rollout_salt": "",
        "model_version": "base",
        "adapter": None,
        "base_model": "base",
        "prompt_hash": content_id(messages),
        "request": {"model": "support", "messages": messages},
        "choices": ()
        if answer is None
        else (Choice(index=0, message={"role": "assistant", "content": answer}, finish_reason="stop"),),
        "usage": None,
        "timings": {"queue_ms": 0.0, "total_ms": 5.0},
        "status": 200,
        "stream_end": "complete",
        "client": "tests",
        "started_at": NOON,
    }
    return Interaction.model_validate(values | fields)


def a_shadow(interaction_id: str = "i1", *, answer: str | None = "Thus.", **fields: Any) -> ShadowAnswer:
    """A candidate's answer to a copy of an interaction's request; `answer=None` means that none came."""
    values: dict[str, Any] = {
        "interaction_id": interaction_id,
        "business": "support",
        "session": "s1",
        "user_key": "u1",
        "rollout_salt": "r1",
        "model_version": "support-v2-bbbbbbbb",
        "choices": ()
        if answer is None
        else (Choice(index=0, message={"role": "assistant", "content": answer}, finish_reason="stop"),),
        "usage": None,
        "total_ms": 5.0,
        "status": None if answer is None else 200,
        "stream_end": "upstream_cut" if answer is None else "complete",
        "started_at": NOON,
    }
    return ShadowAnswer.model_validate(values | fields)


def a_feedback(
    event_id: str = "e1", interaction_id: str = "i1", kind: str = "thumb", value: Any = "up", **fields: Any
) -> Feedback:
    """A thumb up of the user `u1`."""
    values: dict[str, Any] = {
        "event_id": event_id,
        "interaction_id": interaction_id,
        "business": "support",
        "kind": kind,
        "value": value,
        "user_key": "u1",
        "occurred_at": NOON,
        "received_at": fields.get("occurred_at", NOON),
    }
    return Feedback.model_validate(values | fields)


def a_signal(kind: str = "thumb", value: Any = "up", **fields: Any) -> Signal:
    """A thumb up of the user `u1`."""
    values: dict[str, Any] = {
        "kind": kind,
        "value": value,
        "user_key": "u1",
        "occurred_at": NOON,
        "event_ids": (f"e-{kind}",),
    }
    return Signal.model_validate(values | fields)


def a_rated(interaction: Interaction, *signals: Signal, replaced_by: str | None = None) -> RatedInteraction:
    """An interaction with what was said about it."""
    return RatedInteraction(interaction=interaction, signals=signals, replaced_by=replaced_by)


def a_clean_record(
    interaction_id: str = "i1", *signals: Signal, prompt: str = "How?", answer: str = "So.", **fields: Any
) -> CleanRecord:
    """A cleaned question of the user `u1`, with what was said about its answer."""
    values: dict[str, Any] = {
        "interaction_id": interaction_id,
        "business": "support",
        "session": "s1",
        "user_key": "u1",
        "model_version": "base",
        "at": NOON,
        "messages": ({"role": "user", "content": prompt},),
        "answer": {"role": "assistant", "content": answer},
        "signals": signals,
    }
    return CleanRecord.model_validate(values | fields)


def a_source(interaction_id: str = "i1", user: str | None = "u1", session: str = "s1", **fields: Any) -> Source:
    """Where an example comes from: one interaction of one user."""
    values: dict[str, Any] = {
        "interaction_ids": (interaction_id,),
        "event_ids": (f"e-{interaction_id}",),
        "model_versions": ("base",),
        "user_keys": () if user is None else (user,),
        "session": session,
        "at": NOON,
    }
    return Source.model_validate(values | fields)


def an_sft(source: Source, prompt: str = "How?", answer: str = "So.") -> SftExample:
    """A target to imitate."""
    return SftExample(prompt=(_user(prompt),), completion=(_assistant(answer),), source=source)


def a_preference(source: Source, prompt: str = "How?", chosen: str = "So.", rejected: str = "No.") -> PreferenceExample:
    """A pair of answers."""
    return PreferenceExample(
        prompt=(_user(prompt),), chosen=(_assistant(chosen),), rejected=(_assistant(rejected),), source=source
    )


def an_unpaired(source: Source, label: bool = True, prompt: str = "How?", answer: str = "So.") -> UnpairedExample:
    """An answer that was liked or not."""
    return UnpairedExample(prompt=(_user(prompt),), completion=(_assistant(answer),), label=label, source=source)


def an_adapter(business: str = "support", sha256: str | None = None, **fields: Any) -> Adapter:
    """A small adapter on the base model `base`; its digest is made up unless it is given."""
    values: dict[str, Any] = {
        "sha256": sha256 or content_id([business, fields.get("snapshot_id", "")]),
        "business": business,
        "base": {"id": "base", "revision": "r1", "digest": "0" * 64},
        "rank": 8,
        "method": "dpo",
        "snapshot_id": "1" * 64,
        "training_id": "2" * 64,
        "parent_sha256": None,
        "metrics": {},
    }
    return Adapter.model_validate(values | fields)


def a_version(version: int = 1, *, business: str = "support", gate: str = "promote", **fields: Any) -> ModelVersion:
    """A version of an adapter of its own."""
    values: dict[str, Any] = {
        "business": business,
        "version": version,
        "adapter": an_adapter(business, content_id([business, version])),
        "gate": gate,
        "fingerprint": None,
        "aliases": (),
    }
    return ModelVersion.model_validate(values | fields)


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def an_eval_item(item_id: str = "q1", user: str = "u1", set_name: str = "held_out", **fields: Any) -> EvalItem:
    """A held-out question of the user `u1`."""
    values: dict[str, Any] = {
        "item_id": item_id,
        "set_name": set_name,
        "user_key": user,
        "messages": (_user("How?"),),
    }
    return EvalItem.model_validate(values | fields)


def a_scored(
    item: EvalItem, baseline: dict[str, float], candidate: dict[str, float], answers: tuple[str, str] = ("So.", "So!")
) -> ScoredItem:
    """Both answers to an item with their scores. Guardrails that are not named are at their best."""
    fine = {"refusal": 0.0, "unanswered": 0.0, "empty": 0.0, "repetition": 0.0, "pii_leak": 0.0, "length_ratio": 0.0}
    return ScoredItem(
        item=item,
        baseline_answer=answers[0],
        candidate_answer=answers[1],
        baseline=fine | baseline,
        candidate=fine | candidate,
    )


def a_probe(set_name: str, number: int, baseline: float, candidate: float) -> ScoredItem:
    """A probe with the scores of both sides."""
    item = an_eval_item(f"{set_name}-{number}", f"{set_name}:{number}", set_name)
    return ScoredItem(
        item=item,
        baseline_answer="So.",
        candidate_answer="So!",
        baseline={set_name: baseline},
        candidate={set_name: candidate},
    )


def a_missing(item: EvalItem, side: Side = "both", reason: MissingReason = MissingReason.FAILED) -> MissingItem:
    """An item that one side or both gave no answer to."""
    scores = ({"unanswered": float(side in (one, "both"))} for one in ("baseline", "candidate"))
    return MissingItem(item=item, side=side, reason=reason, baseline=next(scores), candidate=next(scores))


def an_eval_result(*items: ScoredItem, **fields: Any) -> EvalResult:
    """The candidate `support-v2` against the baseline `support-v1`, alike in the probes."""
    good = {"sycophancy": 0.0, "general": 1.0}
    values: dict[str, Any] = {
        "business": "support",
        "baseline": "support-v1-aaaaaaaa",
        "candidate": "support-v2-bbbbbbbb",
        "items": items,
        "seed": 0,
        "probes": tuple(a_probe(name, number, score, score) for name, score in good.items() for number in (0, 1)),
    }
    return EvalResult.model_validate(values | fields)


def a_manifest(**fields: Any) -> SnapshotManifest:
    """A snapshot of one training target, from two answers of which one was left out."""
    values: dict[str, Any] = {
        "snapshot_id": "a" * 64,
        "business": "support",
        "window_start": NOON,
        "window_end": NOON,
        "rows": {"train": {"sft": 1, "preference": 0, "unpaired": 0}},
        "interactions": 2,
        "sources": 1,
        "dropped": {"no_feedback": 1},
        "pii_counts": {"EMAIL": 1},
        "signal_counts": {"thumb": 1},
        "users": 1,
        "split_by": "user",
    }
    return SnapshotManifest.model_validate(values | fields)


def a_rollout_report(**fields: Any) -> RolloutReport:
    """The second step of a canary of version 7; the first one passed."""

    def checked(metric: str, estimate: float, margin: float = 0.0) -> dict[str, Any]:
        bounds = {"estimate": estimate, "low": estimate - 0.03, "high": estimate + 0.03, "margin": margin}
        numbers = {"items": 201, "users": 201, "smallest_effect": 0.04, "passed": True}
        return {"metric": metric, "role": "guardrail"} | bounds | numbers

    checks = (checked("hard_failure_limit", 0.01, 0.05), checked("thumb_down", 0.02), checked("refusal", 0.0))
    step = {"candidate_users": 104, "control_users": 97, "checks": checks, "started_at": NOON}
    values: dict[str, Any] = {
        "business": "support",
        "version": 7,
        "previous_version": 6,
        "state": "canary",
        "reason": "The step needs more users.",
        "started_at": NOON,
        "steps": ({"share": 0.05, "ended_at": NOON} | step, {"share": 0.1, "ended_at": None} | step),
    }
    return RolloutReport.model_validate(values | fields)
