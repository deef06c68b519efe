"""`tuneloop snapshot inspect`: what is read, learned and taught away from, as the trainer gets it."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import main
from pipeline.dataset.snapshot import write_snapshot
from pipeline.dataset.split import SplitRows
from tests.builders import NOON, a_preference, a_rated, a_source, an_interaction, an_sft, an_unpaired
from tests.tiny_model import make_tiny_model

READ, LEARNED, UNLEARNED = "\x1b[2m", "\x1b[1;32m", "\x1b[31m"


@pytest.fixture
def with_tiny_base(configs: Path, tmp_path: Path) -> Path:
    file, base = configs / "tuneloop.yaml", make_tiny_model(tmp_path / "tiny")
    file.write_text(re.sub(r"(?m)^(base_model:(?:\n .*)*?\n  path:) \S+", rf"\1 {base}", file.read_text()))
    assert str(base) in file.read_text()
    return configs


def test_tokens_are_marked_by_what_is_learned_of_them(with_tiny_base: Path):
    rows = (
        an_sft(a_source(weight=0.5), "How do I return the shoes?", "Open the Orders page."),
        an_sft(a_source(), "Say nothing.", ""),
        a_preference(a_source(), "怎么退款？", "工单已建。", "Ticket \x1b[41mopened."),
        an_unpaired(a_source(), False, "Hm?", "I choose Return."),
    )
    split = SplitRows(rows, (), (), (), "user")
    place = with_tiny_base.parent / "var" / "snapshots"
    rated = [a_rated(an_interaction("i1"))]
    write_snapshot(place, business="support", window=(NOON, NOON), rated=rated, clean=[], dropped=[], rows=split)
    command = ["snapshot", "inspect", "--business", "support", "--configs", str(with_tiny_base)]
    shown = CliRunner().invoke(main, command, env={"COLUMNS": "200", "FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert shown.exit_code == 0, shown.output

    def marked(mark: str) -> list[str]:
        return re.findall(re.escape(mark) + r"([^\x1b]*)", shown.output)

    assert any("How do I return the shoes?" in part for part in marked(READ))
    assert "Open the Orders page.<|im_end|>" in "".join(marked(LEARNED))
    assert "工单已建。<|im_end|>" in "".join(marked(LEARNED))
    unlearned = "".join(marked(UNLEARNED))
    assert "I choose Return.<|im_end|>" in unlearned
    assert "Ticket" in unlearned
    assert "\x1b[41m" not in shown.output
    assert "weight 0.5" in shown.output
    assert re.search(r"not trained on: empty_side", shown.output)
