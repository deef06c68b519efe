"""`tuneloop snapshot`: counts, rows with their lineage, differences, and one line where something is wrong."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli import main
from flows.terminal import plain
from pipeline.dataset.redaction import redact
from pipeline.dataset.snapshot import write_snapshot
from pipeline.dataset.split import SplitRows
from pipeline.erase.erased import Erased, Kind, digest
from pipeline.records import Dropped, DropReason, Example
from tests.builders import (
    NOON,
    a_clean_record,
    a_preference,
    a_rated,
    a_signal,
    a_source,
    an_interaction,
    an_sft,
    an_unpaired,
)


def run(configs: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["snapshot", *arguments, "--configs", str(configs)], env={"COLUMNS": "160"})


def write(configs: Path, *train: Example, day: int = 0, business: str = "support", **dropped: DropReason) -> str:
    ids = sorted({i for row in train for i in row.source.interaction_ids} | set(dropped))
    manifest = write_snapshot(
        configs.parent / "var" / "snapshots",
        business=business,
        window=(NOON, NOON + timedelta(days=day)),
        rated=[a_rated(an_interaction(i), a_signal()) for i in ids],
        clean=[a_clean_record(i, pii_counts={"PHONE": 1}) for i in ids],
        dropped=[Dropped(interaction_id=i, reason=reason) for i, reason in dropped.items()],
        rows=SplitRows(train, (), (), (), "user"),
    )
    return manifest.snapshot_id


PAIR = a_preference(
    a_source("i1", "secret-user", event_ids=("e1", "e2"), weight=0.5), "怎么付款？", "刷卡。", "不知道。"
)


def test_a_redacted_snapshot_says_so(configs: Path) -> None:
    snapshot_id = write(configs, PAIR, an_unpaired(a_source("i2", "u2", "s2"), label=False))
    folder = configs.parent / "var" / "snapshots" / "support" / snapshot_id
    erased = Erased(frozenset({digest("support", Kind.USER, "secret-user")}))
    assert redact(folder, erased, "e" * 64, NOON) is not None
    assert f"{snapshot_id[:8]} redacted" in run(configs, "list", "--business", "support").output
    shown = " ".join(run(configs, "show", "--business", "support").output.split())
    assert "redacted 2026-03-10 12:00 UTC: rows of erased users are gone (train 1)" in shown
    assert "怎么付款" not in shown


def test_a_snapshot_is_shown_with_its_sums_and_rows_with_their_lineage(configs: Path) -> None:
    snapshot_id = write(configs, PAIR, an_unpaired(a_source("i2"), label=False), i3=DropReason.REFUSAL)
    result = run(configs, "show", "--business", "support")
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    for words in (
        snapshot_id,
        "3 interactions = 2 sources + 1 left out",
        "left out: refusal 1",
        "replaced: PHONE 3",
        "train · preference · weight 0.5 · 2 events of 1 user · answered by base · 2026-03-10 12:00 UTC",
        "asked 怎么付款？",
        "better 刷卡。",
        "worse 不知道。",
        "disliked So.",
        "CARD.md",
    ):
        assert words in shown
    assert "secret-user" not in shown


def test_examples_can_be_of_another_side_or_none(configs: Path) -> None:
    write(configs, PAIR)
    none = run(configs, "show", "latest", "--business", "support", "--examples", "0").output
    assert "weight" not in none
    assert "No rows on side recent." in run(configs, "show", "--business", "support", "--side", "recent").output


def test_the_list_is_newest_first_and_names_what_cannot_be_read(configs: Path) -> None:
    old, new = write(configs, PAIR, day=1), write(configs, an_sft(a_source()), day=2)
    (configs.parent / "var" / "snapshots" / "support" / old / "manifest.json").write_text("{}")
    output = run(configs, "list", "--business", "support").output
    assert output.index(new[:8]) < output.index(old[:8])
    assert "not readable" in output


def test_a_diff_tells_rows_and_reasons(configs: Path) -> None:
    old = write(configs, PAIR, an_sft(a_source("i2"), "Gone?"), day=1, i3=DropReason.NO_FEEDBACK)
    new = write(configs, an_sft(a_source("i3"), "New?"), day=2, i1=DropReason.USER_CAP, i2=DropReason.USER_CAP)
    for arguments in ((old[:6], new), (old, "latest", "--business", "support")):
        result = run(configs, "diff", *arguments)
        assert result.exit_code == 0, result.output
        shown = re.sub(r"[\s│]+", " ", result.output)
        assert f"from {old[:8]} to {new[:8]}" in shown
        assert "came 1 0 0" in shown
        assert "went 2 0 0" in shown
        assert "used user_cap 2" in shown
        assert "no_feedback used 1" in shown
        assert "train · sft · weight 1 · New?" in shown
    assert "Nothing differs." in run(configs, "diff", old, old).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "--business", "nobody"], "no business 'nobody'"),
        (["show", "--business", "kefu"], "run `tuneloop nightly --business kefu`"),
        (["list", "--business", "kefu"], "run `tuneloop nightly --business kefu`"),
        (["show", "zzzz", "--business", "support"], "`tuneloop snapshot list --business support`"),
        (["diff", "zzzz", "latest"], "no business has a snapshot 'zzzz'"),
    ],
)
def test_what_is_wrong_is_one_line_that_mends(configs: Path, arguments: list[str], words: str) -> None:
    write(configs, PAIR)
    result = run(configs, *arguments)
    assert (result.exit_code, len(result.output.strip().splitlines())) == (2, 1), result.output
    assert words in result.output


def test_an_id_that_two_businesses_have_needs_the_business(configs: Path) -> None:
    write(configs, PAIR)
    write(configs, PAIR, business="kefu")
    result = run(configs, "diff", "latest", "latest")
    assert result.exit_code == 2
    assert "kefu or support; say which with --business" in result.output


def test_a_text_cannot_steer_the_terminal() -> None:
    assert plain("a\x1b[31mred\u202e\nb", 50) == "a\ufffd[31mred\ufffd\nb"
    assert plain("x" * 60, 50) == "x" * 50 + "… (60 characters)"


def with_duplicates(configs: Path) -> None:
    """i1 stays for two others, i2 for one."""
    gone = {"d1": ("i1", DropReason.EXACT_DUPLICATE), "d2": ("i1", DropReason.NEAR_DUPLICATE)}
    gone["d3"] = ("i2", DropReason.NEAR_DUPLICATE)
    ids = ["i1", "i2", *gone]
    write_snapshot(
        configs.parent / "var" / "snapshots",
        business="support",
        window=(NOON, NOON),
        rated=[a_rated(an_interaction(i), a_signal()) for i in ids],
        clean=[a_clean_record(i) for i in ids],
        dropped=[
            Dropped(interaction_id=name, reason=reason, detail=f"why {name}", kept=kept)
            for name, (kept, reason) in gone.items()
        ],
        rows=SplitRows((an_sft(a_source("i1")), an_sft(a_source("i2"))), (), (), (), "user"),
    )


def test_clusters_of_duplicates_are_shown_largest_first_with_who_stays_and_why(configs: Path) -> None:
    with_duplicates(configs)
    shown = run(configs, "duplicates", "--business", "support").output
    assert "2 clusters, left out 1 exact_duplicate, 2 near_duplicate" in shown
    assert re.findall(r"(?m)^stays  (\S+)", shown) == ["i1", "i2"]
    assert "exact  d1  why d1" in shown
    few = run(configs, "duplicates", "--business", "support", "--clusters", "1").output
    assert "d3" not in few
    assert "1 smaller clusters are not shown" in few


@pytest.mark.parametrize(("of", "stays"), [("i1", "i1"), ("d2", "i1"), ("d3", "i2")])
def test_the_cluster_of_one_interaction_is_found_by_any_of_its_ids(configs: Path, of: str, stays: str) -> None:
    with_duplicates(configs)
    shown = run(configs, "duplicates", "--business", "support", "--of", of).output
    assert re.findall(r"(?m)^stays  (\S+)", shown) == [stays]


def test_an_interaction_in_no_cluster_is_one_line(configs: Path) -> None:
    with_duplicates(configs)
    result = run(configs, "duplicates", "--business", "support", "--of", "i9")
    assert result.exit_code != 0
    assert "interaction 'i9' is in no cluster of duplicates" in result.output
