"""From events to a snapshot: counts add up, nothing stands on both sides, and how events arrived changes no byte."""

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flows.build
from flows.build import build_snapshot
from pipeline.clean.pii import PatternDetector, Rules
from pipeline.clean.sketches import Sketches
from pipeline.config import (
    BaseModelConfig,
    BusinessConfig,
    Config,
    DatasetConfig,
    EngineConfig,
    Settings,
    SystemConfig,
)
from pipeline.control import open_control_in
from pipeline.dataset.snapshot import Snapshot, read_dropped, read_snapshot
from pipeline.records import Example, Feedback, Interaction, PreferenceExample, Split
from tests.benchmarks.dedup.plain import shingles
from tests.builders import NOON, a_feedback, an_interaction

P = ParamSpec("P")
R = TypeVar("R")
DUE = NOON + timedelta(days=2)
# Two texts, question and answer together, share more than 0.84 of their shingles or less than 0.75: at the threshold
# the search may miss a pair by chance.
LONG = (
    "please tell me how to return the parcel that arrived broken yesterday, who is going to pay for the postage, and "
    "whether I can get a new one before the weekend, because it was meant as a present for my sister who leaves on "
    "Monday"
)
QUESTIONS = [
    LONG,
    f"{LONG} thanks",
    f"{LONG}, 13912345678",
    "发票怎么开？我昨天在你们网店买了两件衣服，公司财务说报销一定要有抬头和税号才可以，请告诉我在哪个页面申请。",
    "發票怎麼開？我昨天在你們網店買了兩件衣服，公司財務說報銷一定要有抬頭和稅號才可以，請告訴我在哪個頁面申請。",
    "where can I change my password, the old one was sent to an address that I no longer have, and the form tells me "
    "that it does not know who I am or which shop I mean",
    "怎么付款才好，我的银行卡上个月过期了，新卡还没有收到，家里人说可以用别的方式先付一部分，你们那里支持吗。",
]
ANSWERS = [
    "Open the order page, choose the parcel that came broken, print the label, put it on the box and bring it to any "
    "of our shops within the next days; the postage is on us.",
    "请您打开订单页面，选择需要开票的订单，点击申请发票，填写抬头和税号，提交以后一般当天就会发送到您的邮箱。",
    "So.",
    None,
]
EDITS = [
    "Ask the courier who brought it to take the box along again, and call 13912345678 when he refuses, so that we can "
    "send somebody else to fetch it from you at once.",
    "发票由我们的财务人员统一寄出，您不用再做什么，请留意快递的短信，有问题可以致电网店。",
]


def plainly(function: Callable[P, R], name: str | None = None) -> Callable[P, R]:
    """A step without a flow around it."""
    return function


def about(**dataset: Any) -> BusinessConfig:
    named = {"business": "support", "title": "Support", "language": "en", "report_language": "en"}
    return BusinessConfig(**named, timezone="UTC", nightly="0 3 * * *", dataset=DatasetConfig(**dataset))


def build(state: Path, business: BusinessConfig) -> Path:
    """A night on what stands in `state`, with patterns as its detector; the snapshot's folder."""
    system = SystemConfig(
        state_dir=state,
        base_model=BaseModelConfig(id="base", revision="r1", path=state),
        engines=(EngineConfig(name="one", url="http://127.0.0.1:1"),),
    )
    config = Config(directory=state, system=system, businesses={"support": business})
    secrets = {name: name for name in ("user_salt", "admin_key", "webhook_secret", "report_secret")}
    control = open_control_in(state)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(flows.build, "OnDemandDetector", lambda _language, rules: PatternDetector(rules or Rules()))
        _, folder = build_snapshot(config, Settings(**secrets), business, control, DUE, plainly)
    control.dispose()
    return folder


def write(state: Path, events: Sequence[Interaction | Feedback], hours: Sequence[str]) -> None:
    """Events dealt out to segments of these hours; one of 2099 is never compacted."""
    folder = state / "events" / "segments"
    folder.mkdir(parents=True, exist_ok=True)
    for place, event in enumerate(events):
        kind = "interaction" if isinstance(event, Interaction) else "feedback"
        with (folder / f"w1-{hours[place % len(hours)]}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({kind: event.model_dump(mode="json")}, ensure_ascii=False) + "\n")


@st.composite
def histories(draw: st.DrawFn) -> list[Interaction | Feedback]:
    events: list[Interaction | Feedback] = []
    for number in range(draw(st.integers(0, 24))):
        user = draw(st.none() | st.integers(0, 14).map("u{}".format))
        at = NOON + timedelta(hours=draw(st.integers(0, 47)))
        session = f"s-{user}-{draw(st.integers(0, 2))}"
        fields: dict[str, Any] = {"user_key": user, "session": session, "started_at": at}
        fields |= {"prompt": draw(st.sampled_from(QUESTIONS)), "answer": draw(st.sampled_from(ANSWERS))}
        fields |= {"status": draw(st.sampled_from([200, 200, 200, 503]))}
        fields |= {"regenerates": draw(st.sampled_from([None, None, f"i{max(0, number - 1)}"]))}
        events.append(an_interaction(f"i{number}", **fields))
        for said in range(draw(st.integers(0, 2))):
            kind, value = draw(
                st.sampled_from(
                    [("thumb", "up"), ("thumb", "down"), ("thumb", None), ("outcome", "failed"), ("abort", True)]
                    + [("edit", edit) for edit in EDITS]
                )
            )
            who = draw(st.sampled_from([user, "u1", "u2"]))
            late = timedelta(minutes=draw(st.integers(-60, 60 * 24)))
            events.append(
                a_feedback(f"e{number}-{said}", f"i{number}", kind, value, user_key=who, occurred_at=at + late)
            )
    return events


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@settings(max_examples=10)
@given(st.data(), histories())
def test_how_events_arrived_changes_no_byte(data: st.DataObject, events: list[Interaction | Feedback]) -> None:
    again = data.draw(st.lists(st.sampled_from(events), max_size=8)) if events else []
    shuffled = data.draw(st.permutations([*events, *again]))
    hours = data.draw(
        st.sampled_from([["20260310T12"], ["20990101T00"], ["20260310T12", "20990101T00", "20260311T09"]])
    )
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        write(Path(one), events, ["20260310T12"])
        write(Path(other), shuffled, hours)
        first, second = build(Path(one), about()), build(Path(other), about())
        assert first.name == second.name
        assert files(first) == files(second)


def test_a_vote_that_comes_after_the_night_counts_in_the_next_one_and_changes_nothing_that_was_built(
    tmp_path: Path,
) -> None:
    asked = [an_interaction(f"i{n}", prompt=QUESTIONS[n], answer=ANSWERS[0], user_key=f"u{n}") for n in (0, 3)]
    write(tmp_path, [*asked, a_feedback("e1", "i0", user_key="u0")], ["20990101T00"])
    first = build(tmp_path, about())
    before = files(first)
    late = a_feedback("e2", "i0", "thumb", None, user_key="u0", occurred_at=NOON + timedelta(hours=1))
    write(tmp_path, [a_feedback("e3", "i3", "thumb", "down", user_key="u3"), late], ["20990101T01"])
    second = build(tmp_path, about())
    assert second.name != first.name
    assert files(first) == before
    voted = [row.source.interaction_ids for side in read_snapshot(second).rows.values() for row in side.all()]
    assert set(voted) == {("i3",)}
    assert {drop.interaction_id: drop.reason.value for drop in read_dropped(second)} == {"i0": "withdrawn"}


@settings(max_examples=5)
@given(histories(), histories())
def test_a_night_comes_to_the_same_after_any_other_night_and_without_its_index(
    earlier: list[Interaction | Feedback], events: list[Interaction | Feedback]
) -> None:
    """What an earlier night left in the index decides nothing. (Its snapshots do not stay: the same rows are the same
    snapshot, which tells of the night that wrote it.)"""
    with TemporaryDirectory() as fresh, TemporaryDirectory() as used:
        write(Path(fresh), events, ["20990101T00"])
        write(Path(used), earlier, ["20990101T00"])
        build(Path(used), about())
        shutil.rmtree(Path(used) / "events")
        write(Path(used), events, ["20990101T00"])
        expected = files(build(Path(fresh), about()))
        for _ in range(2):
            shutil.rmtree(Path(used) / "snapshots")
            assert files(build(Path(used), about())) == expected
            Sketches(Path(used) / "duplicates", "support").forget(lambda _: True)


@settings(max_examples=15)
@given(histories(), st.sampled_from([1, 2]), st.sampled_from([0.0, 0.3, 0.6]), st.sampled_from([0, 1]))
def test_counts_add_up_and_nothing_stands_on_both_sides(
    events: list[Interaction | Feedback], min_users: int, share: float, recent_days: float
) -> None:
    with TemporaryDirectory() as name:
        write(Path(name), events, ["20990101T00"])
        folder = build(
            Path(name), about(min_users=min_users, held_out_share=share, recent_days=recent_days, max_user_share=0.2)
        )
        snapshot, dropped = read_snapshot(folder), read_dropped(folder)
    rows = {split: side.all() for split, side in snapshot.rows.items()}
    sources = {i for side in rows.values() for row in side for i in row.source.interaction_ids}
    every = sorted(event.interaction_id for event in events if isinstance(event, Interaction))
    assert sorted([*sources, *(drop.interaction_id for drop in dropped)]) == every
    assert snapshot.manifest.interactions == snapshot.manifest.sources + sum(snapshot.manifest.dropped.values())
    assert all(drop.kept is None or drop.kept in every for drop in dropped)
    _nothing_on_both_sides(snapshot)


def _nothing_on_both_sides(snapshot: Snapshot) -> None:
    trained = snapshot.rows[Split.TRAIN].all()
    held, recent = snapshot.rows[Split.HELD_OUT].all(), snapshot.rows[Split.RECENT].all()
    for measured in (held, recent):
        assert {row.source.session for row in trained}.isdisjoint(row.source.session for row in measured)
        ids = {i for row in trained for i in row.source.interaction_ids}
        assert all(ids.isdisjoint(row.source.interaction_ids) for row in measured)
        assert not [(a, b) for a in trained for b in measured if _near(_said(a), _said(b))]
    if snapshot.manifest.split_by == "user":
        users = {user for row in (*trained, *recent) for user in row.source.user_keys}
        assert all(users.isdisjoint(row.source.user_keys) for row in held if len(row.source.user_keys) == 1)


def _said(row: Example) -> str:
    answer = row.chosen if isinstance(row, PreferenceExample) else row.completion
    return "\n".join(str(message["content"]) for message in (*row.prompt, *answer))


def _near(one: str, other: str) -> bool:
    a, b = shingles(one), shingles(other)
    return len(a & b) >= 0.8 * len(a | b)
