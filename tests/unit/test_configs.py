"""Every configuration file that is shipped loads, wherever it lies."""

from pathlib import Path

import pytest

from evals.checks import passes
from evals.worlds.content import load_content
from pipeline.config import load_config
from pipeline.dataset.suite import dump_check, load_suite

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "configs", ROOT / "examples" / "demo" / "configs")
FILES = sorted(path for folder in FOLDERS for path in folder.rglob("*.yaml"))
SUITES = [path for path in FILES if path.parent.name == "suites"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_configuration_folder_loads_and_every_file_of_it_is_read(folder: Path) -> None:
    config = load_config(folder)

    read = {folder / "tuneloop.yaml"}
    for key, business in config.businesses.items():
        assert business.suite is not None
        read |= {folder / "businesses" / f"{key}.yaml", folder / business.suite}
    launches = set((folder / "training").glob("*.yaml"))  # one of them may be named by `training.launch`
    assert read | launches == {path for path in FILES if path.is_relative_to(folder)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_configuration_file_opens_with_what_it_is_and_the_command_that_uses_it(path: Path) -> None:
    opening = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        opening.append(line)

    assert any("`tuneloop " in line or "`make " in line for line in opening)


@pytest.mark.parametrize("path", SUITES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_suite_accepts_the_answer_that_users_want_and_no_other(path: Path) -> None:
    suite, content = load_suite(path), load_content(path.stem)

    assert len(suite.items) >= 12
    for item in suite.items:
        checks = [dump_check(check) for check in (*suite.rules, *item.checks)]
        good = [topic for topic in content.facts if all(passes(check, content.ideal(topic)) for check in checks)]
        assert good == [item.id.rsplit("-", 1)[0]]
        assert not any(passes(check, "I am sorry to hear that. Could you tell me more about it?") for check in checks)
        assert item.messages[0] == {"role": "system", "content": content.system}


def test_the_demo_keeps_its_state_apart_and_its_rollout_short() -> None:
    real, demo = (load_config(folder) for folder in FOLDERS)

    assert real.state_dir != demo.state_dir
    assert set(real.businesses) == set(demo.businesses)
    for key, business in demo.businesses.items():
        assert [step.share for step in business.rollout.steps] == [
            step.share for step in real.business(key).rollout.steps
        ]
        assert business.rollout.auto_canary
        assert business.gate.max_tokens == load_content(key).max_tokens
