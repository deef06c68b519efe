"""Real human preferences and edits go in as feedback over the public API, and come out as the rows that they are.

Chat is answered by a stub engine with the data set's own answers; gateway, event log, join, cleaning, duplicates,
examples, split and snapshot are the real ones. What is wrong with the data is known row by row
(`ground_truth_defects.json`), and so is what must become of it.
"""

import asyncio
import json
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.pii import make_detector
from pipeline.clean.steps import clean_records
from pipeline.clean.text import edit_is_trivial
from pipeline.collect.join import join_feedback
from pipeline.config import DatasetConfig
from pipeline.control import open_control_in
from pipeline.dataset.build import build_rows
from pipeline.dataset.snapshot import Rows, read_dropped, read_snapshot, write_snapshot
from pipeline.events.lake import compact
from pipeline.events.read import read_events
from pipeline.gateway.auth import create_key
from pipeline.records import CleanRecord, Dropped, DropReason, SnapshotManifest
from tests.conftest import ROOT, Started, free_port, running

pytestmark = pytest.mark.timeout(1500)  # most of a thousand texts' time is the search for names, on one core
USERS = 40
LEFT_OUT = {
    DropReason.EXACT_DUPLICATE,
    DropReason.NEAR_DUPLICATE,
    DropReason.REFUSAL,
    DropReason.ERROR_ANSWER,
    DropReason.PLACEHOLDER,
    DropReason.TRUNCATED_ANSWER,
    DropReason.HELD_OUT_NEIGHBOUR,
    DropReason.BAD_ENCODING,
}
"""Why a row may be missing that is right by itself."""


@dataclass
class Chat:
    """One question to the gateway, and the answer that the stub gives to it."""

    messages: list[dict[str, str]]
    answer: str
    interaction_id: str = ""


@dataclass
class Case:
    """One row of a data set as what a user does: one chat and an edit of it, or two chats and a choice."""

    row: int
    chats: list[Chat]
    kind: str
    edited: str | None = None

    @property
    def user(self) -> str:
        """One of a few dozen, drawn by the row."""
        return f"user-{random.Random(self.row).randrange(USERS)}"

    def feedback(self) -> dict[str, Any]:
        value: Any = self.edited if self.kind == "edit" else {"over": self.chats[1].interaction_id}
        return {
            "event_id": f"{self.kind}-{self.row}",
            "interaction_id": self.chats[0].interaction_id,
            "kind": self.kind,
            "value": value,
            "user_id": self.user,
        }


@dataclass
class Built:
    """A snapshot, and what was asked to become it."""

    cases: list[Case]
    clean: dict[str, CleanRecord]
    manifest: SnapshotManifest
    rows: list[Rows]
    dropped: dict[str, Dropped]
    kinds: dict[str, list[str]] = field(default_factory=dict)
    """Interaction to the kinds of the rows that come from it."""

    def __post_init__(self) -> None:
        for rows in self.rows:
            for kind, found in rows.by_kind().items():
                for example in found:
                    for interaction_id in example.source.interaction_ids:
                        self.kinds.setdefault(interaction_id, []).append(kind)

    def fate(self, chat: Chat) -> str:
        """What became of a chat: the kinds of its rows, or the reason why it was dropped."""
        made = self.kinds.get(chat.interaction_id)
        return "+".join(sorted(made)) if made else self.dropped[chat.interaction_id].reason

    def untouched(self, chat: Chat) -> bool:
        """Whether cleaning found no personal data in it, so that its texts must be as they were sent."""
        record = self.clean.get(chat.interaction_id)
        return record is not None and not record.pii_counts


class Stub(BaseHTTPRequestHandler):
    """An engine that answers with the answer whose number is the request's seed."""

    protocol_version = "HTTP/1.1"
    answers: list[str]

    def do_GET(self) -> None:
        self._send({"object": "list", "data": []})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": type(self).answers[request["seed"]]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self._send({"id": "c", "object": "chat.completion", "model": "base", "choices": [choice], "usage": usage})

    def _send(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def stub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def gateway(stub: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Started, Path, str]:
    """A gateway of three businesses that is not started yet, its state folder, and a key."""
    folder = tmp_path_factory.mktemp("real-feedback")
    port = free_port()
    system = {
        "state_dir": str(folder / "var"),
        "base_model": {"id": "base", "revision": "1", "path": "models/base"},
        "gateway": {"port": port, "admin_port": free_port()},
        "engines": [{"name": "stub", "url": stub}],
    }
    (folder / "configs" / "businesses").mkdir(parents=True)
    (folder / "configs" / "tuneloop.yaml").write_text(yaml.safe_dump(system))
    for business, language in LANGUAGES.items():
        about = {
            "business": business,
            "title": business,
            "language": language,
            "report_language": "en",
            "timezone": "UTC",
            "nightly": "0 3 * * *",
        }
        (folder / "configs" / "businesses" / f"{business}.yaml").write_text(yaml.safe_dump(about))
    (folder / "var").mkdir()
    control = open_control_in(folder / "var")
    key = create_key(control, "tests", LANGUAGES, datetime.now(UTC))
    control.dispose()
    secrets = [
        f"TUNELOOP_{name}=only-for-this-test" for name in ("USER_SALT", "ADMIN_KEY", "WEBHOOK_SECRET", "REPORT_SECRET")
    ]
    command = ("env", *secrets, f"PYTHONPATH={ROOT}", sys.executable, "-m", "pipeline.gateway")
    command += ("--configs", str(folder / "configs"))
    started = Started(f"http://127.0.0.1:{port}", command, "/readyz", folder / "gateway.log")
    return started, folder / "var", key


LANGUAGES = {"edits": "zh", "choices": "zh", "harmless": "en"}


@pytest.fixture(scope="module")
def built(gateway: tuple[Started, Path, str], shared: Path) -> dict[str, Built]:
    """All data sets, from HTTP to snapshots."""
    server, state_dir, key = gateway
    data = shared / "data"
    cases = {"edits": edit_cases(data), "choices": choice_cases(data), "harmless": harmless_cases(data)}
    chats = [chat for business in cases.values() for case in business for chat in case.chats]
    Stub.answers = [chat.answer for chat in chats]
    numbers = {id(chat): number for number, chat in enumerate(chats)}
    start = datetime.now(UTC)
    with running(server):
        asyncio.run(talk(server.url, key, cases, numbers))
    end = datetime.now(UTC) + timedelta(seconds=1)
    compact(state_dir / "events", end + timedelta(hours=3))
    return {business: build(business, made, state_dir, start, end) for business, made in cases.items()}


async def talk(url: str, key: str, cases: dict[str, list[Case]], numbers: dict[int, int]) -> None:
    """Ask everything, the two chats of a choice one after the other, and then post all feedback twice."""
    limits = httpx.Limits(max_connections=8)
    async with httpx.AsyncClient(
        base_url=url, headers={"authorization": f"Bearer {key}"}, limits=limits, timeout=60
    ) as http:

        async def ask(business: str, case: Case) -> None:
            # Of two answers, sometimes the better one comes first and is then regenerated, sometimes it is the new one.
            for chat in case.chats[:: 1 if case.row % 2 else -1]:
                headers = {"x-session-id": f"{business}-{case.row}", "x-user-id": case.user}
                body = {"model": business, "messages": chat.messages, "seed": numbers[id(chat)]}
                answer = await http.post("/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == 200, answer.text
                assert answer.json()["choices"][0]["message"]["content"] == chat.answer
                chat.interaction_id = answer.headers["x-interaction-id"]

        await asyncio.gather(*(ask(business, case) for business, made in cases.items() for case in made))
        for _ in range(2):
            for business, made in cases.items():
                for first in range(0, len(made), 500):
                    posted = [case.feedback() | {"business": business} for case in made[first : first + 500]]
                    answer = await http.post("/v1/feedback", json=posted)
                    assert answer.status_code == 202, answer.text


def build(business: str, cases: list[Case], state_dir: Path, start: datetime, end: datetime) -> Built:
    events = read_events(state_dir / "events", business, start, end)
    assert (events.bad_lines, events.unmatched_feedback) == (0, 0)
    assert {i.interaction_id for i in events.interactions} == {c.interaction_id for case in cases for c in case.chats}
    assert len(events.feedback) == len(cases)
    rated = join_feedback(events.interactions, events.feedback)
    clean, unclean = clean_records(rated, make_detector(LANGUAGES[business]), frozenset())
    config = DatasetConfig(recent_days=0, max_user_share=1.0)
    unique, duplicates = drop_duplicates(clean, config.near_duplicate_threshold)
    rows, unused = build_rows(unique, business, config, end)
    manifest = write_snapshot(
        state_dir / "snapshots",
        business=business,
        window=(start, end),
        rated=rated,
        clean=clean,
        dropped=[*unclean, *duplicates, *unused],
        rows=rows,
    )
    folder = state_dir / "snapshots" / business / manifest.snapshot_id
    return Built(
        cases=cases,
        clean={record.interaction_id: record for record in clean},
        manifest=manifest,
        rows=list(read_snapshot(folder).rows.values()),
        dropped={dropped.interaction_id: dropped for dropped in read_dropped(folder)},
    )


def edit_cases(data: Path) -> list[Case]:
    """Machine translations and what a translator made of them."""
    lines = (data / "edits" / "mlqe_pe_enzh_dev.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        Case(
            number,
            [Chat([{"role": "user", "content": f"翻译成中文：{row['source_en']}"}], row["original_mt_zh"])],
            "edit",
            row["edited_pe_zh"],
        )
        for number, row in enumerate(map(json.loads, lines))
    ]


CHOICES_EVERY, HARMLESS_EVERY = 3, 20
"""The sets of pairs are long: every row with a known peculiarity is taken, and of the others one in so many."""


def choice_cases(data: Path) -> list[Case]:
    """Chinese pairs of answers."""
    rows = json.loads((data / "llamafactory" / "dpo_zh_demo.json").read_text(encoding="utf-8"))
    truth = ground_truth(data, "llamafactory/dpo_zh_demo.json")
    wanted = {*truth["one_contains_other"], *(row for pair in truth["same_prompt_pairs"] for row in pair)}
    roles = {"human": "user", "gpt": "assistant", "system": "system"}
    cases = []
    for number, row in enumerate(rows):
        if number in wanted or number % CHOICES_EVERY == 0:
            prompt = [{"role": roles[turn["from"]], "content": turn["value"]} for turn in row["conversations"]]
            chats = [Chat(prompt, row["chosen"]["value"]), Chat(prompt, row["rejected"]["value"])]
            cases.append(Case(number, chats, "choice"))
    return cases


def harmless_cases(data: Path) -> list[Case]:
    """English pairs of transcripts; four have an empty chosen answer, one has two different prompts."""
    defects = ground_truth(data, "pref/hh_harmless_test_a.jsonl")
    wanted = {*defects["chosen_empty"], *defects["prompt_differs"]}
    lines = (data / "pref" / "hh_harmless_test_a.jsonl").read_text(encoding="utf-8").splitlines()
    cases = []
    for number, line in enumerate(lines):
        if number in wanted or number % HARMLESS_EVERY == 0:
            row = json.loads(line)
            cases.append(Case(number, [transcript(row["chosen"]), transcript(row["rejected"])], "choice"))
    return cases


def transcript(text: str) -> Chat:
    parts = re.split(r"\n\n(Human|Assistant):", text)[1:]
    roles = {"Human": "user", "Assistant": "assistant"}
    turns = [{"role": roles[role], "content": said.strip()} for role, said in zip(parts[::2], parts[1::2], strict=True)]
    assert turns[-1]["role"] == "assistant"
    return Chat(turns[:-1], turns[-1]["content"])


def ground_truth(data: Path, name: str) -> dict[str, Any]:
    defects: dict[str, Any] = json.loads((data / "ground_truth_defects.json").read_text(encoding="utf-8"))
    return defects[f"dev/{name}"]


def test_every_edit_became_what_it_is(built: dict[str, Built], shared: Path) -> None:
    edits = built["edits"]
    truth = ground_truth(shared / "data", "edits/mlqe_pe_enzh_dev.jsonl")
    nothing, spaces, deletions = (set(truth[k]) for k in ("no_edit", "whitespace_only", "pure_deletion"))
    seen: Counter[str] = Counter()
    for case in edits.cases:
        (chat,) = case.chats
        fate = edits.fate(chat)
        if fate in LEFT_OUT:
            seen["cleaned away"] += 1
        elif case.row in nothing:
            assert fate is DropReason.IDENTICAL, case.row
            seen["nothing"] += 1
        elif case.row in spaces or case.row in deletions:
            assert fate == "sft", case.row
            seen["target"] += 1
        else:
            assert fate in ("sft", "preference+sft"), case.row
            seen["pair" if "preference" in fate else "target"] += 1
    assert seen["nothing"] > 60
    assert seen["target"] > 250
    assert seen["pair"] > 350


def test_every_text_of_an_edit_is_as_it_was_sent(built: dict[str, Built]) -> None:
    edits = built["edits"]
    cases = {case.chats[0].interaction_id: case for case in edits.cases}
    compared = 0
    for rows in edits.rows:
        for example in (*rows.sft, *rows.preference):
            case = cases[example.source.interaction_ids[0]]
            assert example.source.event_ids == (f"edit-{case.row}",)
            if not edits.untouched(case.chats[0]):
                continue
            compared += 1
            better = example.completion if hasattr(example, "completion") else example.chosen
            assert better[0]["content"] == case.edited
            assert list(example.prompt) == case.chats[0].messages
            if hasattr(example, "rejected"):
                assert example.rejected[0]["content"] == case.chats[0].answer
    assert compared > 250  # the others hold names, which were replaced


def test_every_choice_is_a_pair_in_the_right_direction(built: dict[str, Built]) -> None:
    choices = built["choices"]
    cases = {case.chats[0].interaction_id: case for case in choices.cases}
    pairs = {pair.source.interaction_ids: pair for rows in choices.rows for pair in rows.preference}
    for (better, worse), pair in pairs.items():
        case = cases[better]
        assert worse == case.chats[1].interaction_id
        if choices.untouched(case.chats[0]) and choices.untouched(case.chats[1]):
            assert (pair.chosen[0]["content"], pair.rejected[0]["content"]) == tuple(c.answer for c in case.chats)
    missing = [case for case in choices.cases if tuple(c.interaction_id for c in case.chats) not in pairs]
    for case in missing:
        fates = [choices.fate(chat) for chat in case.chats]
        assert LEFT_OUT.intersection(fates), (case.row, fates)
    assert len(pairs) > 90  # the others are told above, each with its reason
    assert not any(rows.sft or rows.unpaired for rows in choices.rows)


def test_empty_and_mismatched_sides_are_dropped_by_name(built: dict[str, Built], shared: Path) -> None:
    harmless = built["harmless"]
    truth = ground_truth(shared / "data", "pref/hh_harmless_test_a.jsonl")
    pairs = {pair.source.interaction_ids for rows in harmless.rows for pair in rows.preference}
    for case in harmless.cases:
        ids = tuple(chat.interaction_id for chat in case.chats)
        fates = [harmless.fate(chat) for chat in case.chats]
        if case.row in truth["chosen_empty"]:
            assert fates[0] is DropReason.EMPTY_SIDE, (case.row, fates)
            assert ids not in pairs
        elif case.row in truth["prompt_differs"]:
            assert set(fates) <= {DropReason.PROMPT_MISMATCH, *LEFT_OUT}, (case.row, fates)
        elif edit_is_trivial(*(chat.answer for chat in case.chats)):
            assert fates == [DropReason.TRIVIAL_EDIT] * 2 or LEFT_OUT.intersection(fates), (case.row, fates)
        else:
            assert ids in pairs or LEFT_OUT.intersection(fates), (case.row, fates)
    assert len(pairs) > 30


def test_sums_match(built: dict[str, Built]) -> None:
    for made in built.values():
        manifest = made.manifest
        asked = sum(len(case.chats) for case in made.cases)
        assert asked == manifest.interactions == manifest.sources + sum(manifest.dropped.values())
        assert sum(manifest.signal_counts.values()) == len(made.cases)
        assert 10 <= manifest.users <= USERS
    assert built["edits"].manifest.split_by == "user"
    assert built["edits"].manifest.dropped[DropReason.IDENTICAL] == 76
