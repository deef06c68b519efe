"""A state folder in which one user has left traces in every store, beside others who must not notice their going."""

import json
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from sqlalchemy import Engine

from evals.gate import decide
from evals.report import render_gate_report
from flows.erasure import Places, Plan, erase
from pipeline.clean.near.search import Bands
from pipeline.clean.sketches import Sketches
from pipeline.collect.quarantine import Quarantine
from pipeline.config import BusinessConfig
from pipeline.control import open_control_in
from pipeline.dataset.snapshot import read_manifest, write_snapshot
from pipeline.dataset.split import SplitRows
from pipeline.events.lake import compact
from pipeline.events.read import Events, read_events
from pipeline.events.segment import SegmentLog
from pipeline.gateway.arms import DatabaseArmStore, SessionArm
from pipeline.gateway.ids import Ids
from pipeline.gateway.routing import Assignment
from pipeline.records import (
    Arm,
    Dropped,
    DropReason,
    Example,
    Feedback,
    Finding,
    Fingerprint,
    Interaction,
    QuarantineReason,
    ShadowAnswer,
)
from pipeline.registry.base import ModelRegistry
from pipeline.train.job import Job
from pipeline.train.process import adapter_digest
from pipeline.train.recipe import Recipe
from tests.adapter_files import adapter_tensors, write_adapter
from tests.builders import (
    NOON,
    a_clean_record,
    a_feedback,
    a_preference,
    a_rated,
    a_scored,
    a_shadow,
    a_signal,
    a_source,
    an_adapter,
    an_eval_item,
    an_eval_result,
    an_interaction,
    an_sft,
)

SALT = "erasure-tests"
USER_ID = "alice.QZX-raw-id@example.org"
MARK = "QZX"
"""Stands in every text of the user, and of nobody else."""
IDS = Ids(SALT)
USER = IDS.user_key("support", USER_ID)
OTHER, THIRD = IDS.user_key("support", "bob"), IDS.user_key("support", "carol")
OWN, SHARED, OTHERS = (IDS.session("support", "named", name) for name in ("own", "shared", "others"))
MINE = ("QZX-i1", "QZX-i2", "QZX-i3", "QZX-i4", "QZX-i5")
"""Ids of interactions that go."""
NEEDLES = (MARK.encode(), USER.encode(), OWN.encode())
LATER = NOON + timedelta(hours=6)
NIGHT = LATER + timedelta(hours=12)
EVER = (NOON - timedelta(days=30), NOON + timedelta(days=30))


def chat(name: str, user: str | None, session: str, *texts: str, answer: str, **fields: Any) -> Interaction:
    """A turn whose prompt is a conversation: question, answer, question, …"""
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    request = {"model": "support", "messages": [{"role": "system", "content": "Be kind."}, *messages]}
    return an_interaction(name, user_key=user, session=session, request=request, answer=answer, **fields)


def early_events() -> list[Interaction | Feedback | ShadowAnswer]:
    """What stands in the lake."""
    return [
        chat("QZX-i1", USER, OWN, "Where is my QZX parcel?", answer="Parcel QZX is late."),
        # The client named nobody in this turn of a conversation that is the user's alone.
        chat("QZX-i2", None, OWN, "And my QZX refund?", answer="Refund QZX is due."),
        chat("QZX-i3", USER, SHARED, "Can we meet at QZX?", answer="Yes, at QZX."),
        # Somebody else's turn in the same conversation, with the user's words before it.
        chat("QZX-i4", OTHER, SHARED, "Can we meet at QZX?", "Yes, at QZX.", "When?", answer="At nine."),
        chat("o1", OTHER, SHARED, "What is for lunch?", answer="Soup."),
        chat("o2", OTHER, OTHERS, "How do I pay?", answer="By card."),
        chat("o3", THIRD, "s-third", "How do I pay?", answer="In cash."),
        an_interaction("o2", business="legal", user_key=OTHER, session="s-legal"),
        a_feedback("QZX-e1", "QZX-i1", "edit", "Parcel QZX comes tomorrow.", user_key=USER),
        a_feedback("QZX-e2", "QZX-i1", "comment", "our QZX customer again", user_key=OTHER),
        a_feedback("QZX-e3", "o2", "edit", "By card, says QZX.", user_key=USER, reason="QZX knows"),
        a_feedback("f1", "o2", user_key=OTHER),
        a_feedback("f2", "o3", user_key=THIRD),
        a_shadow("QZX-i1", answer="QZX in shadow.", user_key=USER, session=OWN),
        # Of a turn that goes although it is somebody else's.
        a_shadow("QZX-i4", answer="At QZX, at ten.", user_key=OTHER, session=SHARED),
        a_shadow("o2", answer="By card, or in cash.", user_key=OTHER, session=OTHERS),
    ]


def late_events() -> list[Interaction | Feedback | ShadowAnswer]:
    """What stands in the segment that a gateway writes to now."""
    return [
        chat("QZX-i5", None, "s-retry", "Where is my QZX parcel?", answer="QZX is here.", regenerates="QZX-i1"),
        chat("o4", THIRD, "s-third", "How do I pay?", "In cash.", "Why?", answer="So."),
        a_feedback("QZX-e4", "o4", "choice", {"over": "QZX-i5"}, user_key=THIRD),
        a_feedback("f3", "o4", "thumb", "down", user_key=THIRD),
        a_feedback("QZX-e5", "not-here-yet", "comment", "QZX said so", user_key=USER),
        a_shadow("QZX-i2", answer="QZX in shadow.", user_key=None, session=OWN),
        a_shadow("o4", answer="Because.", user_key=THIRD, session="s-third"),
    ]


NAMES = {Interaction: b"interaction", Feedback: b"feedback", ShadowAnswer: b"shadow"}


def line(event: Interaction | Feedback | ShadowAnswer) -> bytes:
    return b'{"%b":%b}' % (NAMES[type(event)], event.model_dump_json().encode())


def about_support() -> BusinessConfig:
    """The business, as its file says."""
    return BusinessConfig.model_validate(
        {
            "business": "support",
            "title": "Shop support",
            "language": "en",
            "report_language": "en",
            "timezone": "UTC",
            "nightly": "0 2 * * *",
            "gate": {"bootstrap_samples": 200},
        }
    )


def write_events(state: Path) -> SegmentLog:
    """Lake, a segment that a crash has cut, and one that a gateway has open; returns the latter."""
    segments = state / "events" / "segments"
    early = SegmentLog(segments, "gateway-old")
    early.commit([line(event) for event in early_events()], NOON)
    early.close()
    assert compact(state / "events", LATER) == 1
    torn = line(chat("QZX-i1", USER, OWN, "torn QZX text", answer="QZX"))[:-40]
    (segments / f"gateway-dead-{LATER:%Y%m%dT%H}.jsonl").write_bytes(b'{"neither":"of the two"}\n' + torn)
    living = SegmentLog(segments, "gateway")
    living.commit([line(event) for event in late_events()], LATER)
    # A gateway's half-written file of the lake, from a compaction that was killed.
    day = next((state / "events" / "lake" / "support").iterdir())
    (day / ".gateway-old.parquet.x.tmp").write_bytes(b"QZX half a file")
    return living


def snapshot(state: Path, day: int, train: list[Example], held_out: list[Example], *dropped: str) -> str:
    ids = sorted({i for row in [*train, *held_out] for i in row.source.interaction_ids} | set(dropped))
    manifest = write_snapshot(
        state / "snapshots",
        business="support",
        window=(NOON, NOON + timedelta(days=day)),
        rated=[a_rated(an_interaction(i), a_signal()) for i in ids],
        clean=[a_clean_record(i) for i in ids],
        dropped=[Dropped(interaction_id=i, reason=DropReason.NEAR_DUPLICATE, kept="QZX-i1") for i in dropped],
        rows=SplitRows(tuple(train), tuple(held_out), (), (), "user"),
    )
    return manifest.snapshot_id


def write_snapshots(state: Path) -> tuple[str, str, str]:
    """One that was trained on the user, one that was measured on them, and one that never saw them."""
    own = a_source("QZX-i1", USER, OWN, event_ids=("QZX-e1",))
    pair = a_source("o2", OTHER, OTHERS, interaction_ids=("o2", "o3"), user_keys=(OTHER, THIRD))
    with_other = a_source("o2", OTHER, OTHERS, user_keys=(OTHER, USER), event_ids=("f1", "QZX-e3"))
    other = an_sft(a_source("o3", THIRD, "s-third"), "How do I pay?", "In cash.")
    trained = snapshot(
        state,
        1,
        [
            an_sft(own, "Where is my QZX parcel?", "Parcel QZX comes tomorrow."),
            an_sft(with_other, "How do I pay?", "By card, says QZX."),
            a_preference(pair, "How do I pay?", "By card.", "In cash."),
        ],
        [an_sft(a_source("o1", OTHER, "s-o1"), "What is for lunch?", "Soup.")],
        "QZX-i2",
        "o4",
    )
    held_out = [a_preference(own, "Where is my QZX parcel?", "Parcel QZX comes tomorrow.", "Parcel QZX is late.")]
    measured = snapshot(state, 2, [other], held_out)
    clean = snapshot(state, 3, [other], [])
    return trained, measured, clean


def write_control(engine: Engine) -> None:
    """Findings of the user alone, of the user and another, and of another; and everybody's arms."""
    findings = [
        Finding(
            business="support",
            reason=QuarantineReason.BURST,
            evidence="one user",
            user_keys=users,
            interaction_ids=interactions,
            event_ids=events,
        )
        for users, interactions, events in (
            ((USER,), ("QZX-i1",), ("QZX-e1",)),
            ((OTHER, USER), ("QZX-i1", "o2"), ("QZX-e1", "f1")),
            ((THIRD,), ("o3",), ("f2",)),
        )
    ]
    Quarantine(engine).hold(findings, NOON)
    one = Assignment("r1", Arm.CANDIDATE, 0.1)
    arms = [SessionArm("support", session, one, True, NOON) for session in (OWN, SHARED, OTHERS)]
    DatabaseArmStore(engine).exchange(arms, None, NOON, 10)


def page(snapshot_dir: Path, text: str) -> tuple[Any, str]:
    """A decision and its page, with a question and both answers that hold the text."""
    item = an_eval_item("q1", USER, messages=({"role": "user", "content": text},), reference=f"{text}!")
    result = an_eval_result(a_scored(item, {"golden": 0.0}, {"golden": 1.0}, (f"{text} old", f"{text} new")))
    about = about_support()
    decision = decide(result, about.gate)
    manifest = read_manifest(snapshot_dir)
    told = render_gate_report(
        decision, result, manifest, business=about, version=1, baseline_version=None, generated_at=NOON
    )
    return decision, told


def write_versions(state: Path, registry: ModelRegistry, snapshots: tuple[str, str, str]) -> None:
    """Trained on the user, measured on them, not at all, going on from the first, and of a snapshot that is lost."""
    digests: list[str] = []
    for number, (snapshot_id, parent) in enumerate(
        [*((one, None) for one in snapshots), (snapshots[2], 0), ("9" * 64, None)], start=1
    ):
        folder = write_adapter(state / "made", adapter_tensors(seed=number))
        digests.append(adapter_digest(folder))
        folder.rename(state / "adapters" / digests[-1])
        fields = {"snapshot_id": snapshot_id, "training_id": digests[-1]}
        parent_sha256 = None if parent is None else digests[parent]
        adapter = an_adapter("support", digests[-1], parent_sha256=parent_sha256, **fields)
        registry.register(adapter, state / "adapters" / digests[-1], {}, f"sft, snapshot {snapshot_id[:8]}")
        if number > 2:
            continue
        texts = ("Where is my QZX parcel?\nParcel QZX comes tomorrow.", "How do I pay?\nBy card.")
        probe = texts if number == 1 else ("How do I pay?\nIn cash.",)
        numbers = tuple(-float(n + 1) for n in range(len(probe)))
        registry.record_fingerprint(
            "support", number, Fingerprint(texts=probe, base_logprobs=numbers, adapter_logprobs=numbers)
        )
        text = "Where is my QZX parcel?" if number == 2 else "What is for lunch?"
        decision, told = page(state / "snapshots" / "support" / snapshot_id, text)
        report = state / "reports" / "support" / f"decision-v{number}.html"
        report.write_text(told, encoding="utf-8")
        registry.record_decision(decision, number, report)


def write_quotes(state: Path, registry: ModelRegistry) -> str:
    """A version whose snapshot holds no row of the user, and quotes what they said of other people's answers."""
    rows = [an_sft(a_source("o3", THIRD, "s-third"), "How do I pay?", "In cash, please.")]
    said = {"QZX is closed": (USER, OTHER, THIRD), "too long": (USER, OTHER, THIRD, "u4")}
    clean = [
        a_clean_record("o4", *(a_signal(user_key=user, reason=text) for text, users in said.items() for user in users))
    ]
    dropped = [Dropped(interaction_id="o4", reason=DropReason.USER_CAP)]
    manifest = write_snapshot(
        state / "snapshots",
        business="support",
        window=(NOON, NOON + timedelta(days=4)),
        rated=[a_rated(an_interaction(i), a_signal()) for i in ("o3", "o4")],
        clean=clean,
        dropped=dropped,
        rows=SplitRows(tuple(rows), (), (), (), "user"),
    )
    folder = write_adapter(state / "made", adapter_tensors(seed=9))
    digest = adapter_digest(folder)
    folder.rename(state / "adapters" / digest)
    adapter = an_adapter("support", digest, snapshot_id=manifest.snapshot_id, training_id=digest)
    version = registry.register(adapter, state / "adapters" / digest, {}, "sft").version
    decision, told = page(state / "snapshots" / "support" / manifest.snapshot_id, "What is for lunch?")
    report = state / "reports" / "support" / f"decision-v{version}.html"
    report.write_text(told, encoding="utf-8")
    registry.record_decision(decision, version, report)
    return manifest.snapshot_id


def write_scratch(state: Path, snapshots: tuple[str, str, str]) -> None:
    """Kept answers, and what killed processes have left."""
    for name in ("support-0123456789abcdef.jsonl", "support-two-0123456789abcdef.jsonl"):
        text = "QZX answer" if name.startswith("support-0") else "answer"
        (state / "work" / "gate" / name).write_text(json.dumps({"key": "k", "value": text}) + "\n")
    half = state / "snapshots" / "support" / f".{'8' * 64}.half"
    half.mkdir()
    (half / "train_sft.parquet").write_bytes(b"QZX")
    bands, texts = Bands.at(0.8), [("How do I pay?",), ("Where is my QZX parcel?",)]
    Sketches(state / "duplicates", "support").signatures(["o2", "QZX-i1"], texts, bands)
    (state / "duplicates" / ".support.parquet.x.tmp").write_bytes(b"QZX-i1")
    for training, business, text in (("7" * 64, "support", "QZX tokens"), ("6" * 64, "legal", "tokens")):
        folder = state / "work" / training
        folder.mkdir()
        adapter = an_adapter()
        job = Job(
            snapshot_dir=state / "snapshots" / business / ("5" * 64),
            recipe=Recipe(),
            base=adapter.base,
            base_path=state,
            parent=None,
            output=folder / "adapter",
        )
        (folder / "job.json").write_text(job.model_dump_json())
        (folder / "checkpoint.bin").write_text(text)
        folder.with_suffix(".log").write_text(text)
        folder.with_suffix(".lock").touch()


def build(state: Path, registry: ModelRegistry) -> SegmentLog:
    """Write all of it; returns the segment that a gateway has open."""
    for folder in ("adapters", "reports/support", "work/gate", "snapshots/support"):
        (state / folder).mkdir(parents=True)
    living = write_events(state)
    snapshots = write_snapshots(state)
    control = open_control_in(state)
    write_control(control)
    control.dispose()
    write_versions(state, registry, snapshots)
    write_scratch(state, snapshots)
    return living


def places(state: Path, registry: ModelRegistry) -> Places:
    control = open_control_in(state)
    return Places(state, control, registry, [DatabaseArmStore(control)])


def erase_user(state: Path, registry: ModelRegistry, *users: str, **changes: Any) -> Plan | None:
    """Erase a user (or others) in the night, told to go ahead."""
    values: dict[str, Any] = {
        "actor": "ann",
        "now": NIGHT,
        "begin": lambda what, size: lambda done: None,
        "confirm": lambda plan: True,
        "on_wait": lambda: None,
    }
    return erase(places(state, registry), about_support(), users or (USER,), **(values | changes))


def events(state: Path, business: str = "support") -> Events:
    """All that is left in the log."""
    return read_events(state / "events", business, *EVER)


def ids(found: Events) -> tuple[list[str], list[str]]:
    """Of interactions, and of feedback."""
    return [i.interaction_id for i in found.interactions], [f.event_id for f in found.feedback]


def found_in(folder: Path, needles: tuple[bytes, ...] = NEEDLES) -> set[str]:
    """Files under a folder in which one of the needles is, in their bytes or in what those unpack to."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(needle in text for text in _texts(path) for needle in needles)
    }


def _texts(path: Path) -> Iterator[bytes]:
    yield str(path.name).encode()
    content = path.read_bytes()
    yield content
    if content[:4] == b"PAR1":
        yield json.dumps(pq.read_table(path).to_pylist(), ensure_ascii=False, default=str).encode()


def tables(state: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in the control database but its audit trail."""
    with sqlite3.connect(state / "control.db") as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(database.execute(f"SELECT * FROM {name}")) for name in names if name != "audit"}
