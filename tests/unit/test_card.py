"""The data card counts what is in the snapshot, can be made again from its folder, and gives nobody away."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dataset.card import render_card
from pipeline.dataset.snapshot import read_dropped, read_snapshot, write_snapshot
from pipeline.dataset.split import SplitRows
from pipeline.records import Dropped, DropReason, Example, Split
from tests.builders import (
    NOON,
    a_clean_record,
    a_manifest,
    a_preference,
    a_rated,
    a_signal,
    a_source,
    an_interaction,
    an_sft,
    an_unpaired,
)


def card(
    *train: Example, held_out: tuple[Example, ...] = (), dropped: tuple[Dropped, ...] = (), sources: int = 1
) -> str:
    manifest = a_manifest(interactions=sources + len(dropped), sources=sources)
    return render_card(manifest, {Split.TRAIN: train, Split.HELD_OUT: held_out, Split.RECENT: ()}, dropped)


def line(text: str, start: str) -> list[str]:
    """The cells of the table row that begins so."""
    (found,) = [row for row in text.splitlines() if row.startswith(f"| {start} |")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def test_rows_are_counted_by_side_and_kind() -> None:
    text = card(
        an_sft(a_source("i1")),
        an_unpaired(a_source("i1")),
        an_unpaired(a_source("i2"), label=False),
        held_out=(a_preference(a_source("i3")),),
    )
    assert line(text, "train") == ["1", "0", "2", "3"]
    assert line(text, "held_out") == ["0", "1", "0", "1"]
    assert line(text, "recent") == ["0", "0", "0", "0"]
    assert line(text, "**all**") == ["1", "1", "2", "4"]
    assert "- unpaired rows that were liked: 1 of 2 (50.0%)" in text


def test_what_was_left_out_adds_up_and_duplicates_are_named() -> None:
    reasons = [DropReason.NEAR_DUPLICATE, DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE, DropReason.REFUSAL]
    text = card(
        an_sft(a_source("i0")),
        dropped=tuple(Dropped(interaction_id=f"d{n}", reason=reason) for n, reason in enumerate(reasons)),
    )
    assert "5 interactions = 1 sources + 4 left out." in text
    assert line(text, "near_duplicate") == ["2", "40.0%"]
    assert line(text, "**all left out**") == ["4", "80.0%"]
    assert line(text, "nearly the same as one that stayed") == ["2", "40.0%"]
    assert line(text, "too near to a row on the other side of the split") == ["0", "0.0%"]


def test_shares_of_users_are_of_rows() -> None:
    rows = [an_sft(a_source(f"i{n}", user)) for n, user in enumerate(["u1", "u1", "u2", None])]
    text = card(*rows, an_sft(a_source("i9", user_keys=("u1", "u3"))))
    assert "- users: 3" in text
    assert "- largest share of one user: 3 of 5 (60.0%)" in text
    assert "- share of the 3 largest together: 4 of 5 (80.0%)" in text
    assert "- rows of several users: 1 of 5 (20.0%)" in text
    assert "- rows of no known user: 1 of 5 (20.0%)" in text


@pytest.mark.parametrize(
    ("prompt", "answer", "script"),
    [
        ("How do I pay?", "By card.", "Latin"),
        ("怎么付款？", "可以刷卡。", "Chinese"),
        ("How do I use 支付宝 here?", "Scan it.", "Chinese and Latin"),
        ("Как заплатить?", "Картой.", "other"),
        ("1 + 1?", "2", "none"),
    ],
)
def test_languages_are_told_by_script(prompt: str, answer: str, script: str) -> None:
    assert line(card(an_sft(a_source(), prompt, answer)), script) == ["1", "0", "0"]


def test_lengths_are_those_that_so_many_rows_do_not_exceed() -> None:
    rows = [an_sft(a_source(f"i{n}"), prompt="x" * n, answer="yy") for n in range(1, 101)]
    text = card(*rows)
    assert line(text, "prompt, characters") == ["50", "90", "99", "100"]
    assert line(text, "answer to learn (completion, chosen), characters") == ["2"] * 4
    assert "rejected answer" not in text


def test_weak_rows_times_and_models_are_told() -> None:
    odd = a_source("i2", weight=0.5, at=NOON + timedelta(hours=3), model_versions=("a|b`c\n", "base"))
    text = card(an_sft(a_source("i1")), an_sft(odd))
    assert "- rows of weak evidence (weight below 1): 1 of 2 (50.0%)" in text
    assert "2026-03-10 12:00 to 2026-03-10 15:00 UTC" in text
    assert line(text, "`base`") == ["2"]
    assert line(text, "`a_b_c_`") == ["1"]


def test_an_empty_snapshot_has_a_card() -> None:
    text = card(sources=0)
    assert line(text, "**all**") == ["0"] * 4
    assert "0 interactions = 0 sources + 0 left out." in text


def test_the_card_is_what_its_folder_says(tmp_path: Path) -> None:
    rows = SplitRows((an_sft(a_source("i1")), a_preference(a_source("i2", "u2"))), (), (), (), "session")
    manifest = write_snapshot(
        tmp_path,
        business="support",
        window=(NOON, NOON + timedelta(days=1)),
        rated=[a_rated(an_interaction(i), a_signal()) for i in ("i1", "i2", "i3")],
        clean=[a_clean_record("i1", pii_counts={"PHONE": 2})],
        dropped=[Dropped(interaction_id="i3", reason=DropReason.TRIVIAL_EDIT)],
        rows=rows,
    )
    folder = tmp_path / "support" / manifest.snapshot_id
    found = read_snapshot(folder)
    written = (folder / "CARD.md").read_text(encoding="utf-8")
    assert written == render_card(
        found.manifest, {split: side.all() for split, side in found.rows.items()}, read_dropped(folder)
    )
    assert f"- id: `{manifest.snapshot_id}`" in written
    assert line(written, "PHONE") == ["2"]
    assert line(written, "thumb") == ["3"]


SECRETS = st.from_regex(r"[a-zäß0-9]{12,20}", fullmatch=True).map("zq{}qz".format)
ROWS = st.one_of(
    st.builds(lambda s, q, a: an_sft(s, q, a), st.builds(a_source, SECRETS, SECRETS, SECRETS), SECRETS, SECRETS),
    st.builds(
        lambda s, q, a, b: a_preference(s, q, a, b),
        st.builds(a_source, SECRETS, SECRETS, SECRETS),
        SECRETS,
        SECRETS,
        SECRETS,
    ),
    st.builds(
        lambda s, good, q, a: an_unpaired(s, good, q, a),
        st.builds(a_source, SECRETS, st.none(), SECRETS),
        st.booleans(),
        SECRETS,
        SECRETS,
    ),
)


@settings(max_examples=40)
@given(st.data(), st.lists(ROWS, max_size=12), st.lists(st.sampled_from(DropReason), max_size=12))
def test_no_card_holds_a_key_an_id_or_a_text_and_order_changes_nothing(
    data: st.DataObject, rows: list[Example], reasons: list[DropReason]
) -> None:
    dropped = tuple(Dropped(interaction_id=f"zq{n}qz", reason=r, detail="zqdetailqz") for n, r in enumerate(reasons))
    text = card(*rows, dropped=dropped)
    assert not re.search("zq.*qz", text)
    assert sum(int(line(text, kind.value)[0]) for kind in set(reasons)) == len(reasons)
    assert line(text, "**all**")[-1] == str(len(rows))
    assert card(*data.draw(st.permutations(rows)), dropped=data.draw(st.permutations(dropped))) == text  # type: ignore[arg-type]
