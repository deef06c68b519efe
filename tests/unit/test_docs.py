"""The documentation is true: README's tree, commands and dependencies are what is there."""

import re
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from flows.cli import main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _tree() -> list[str]:
    block = README.split("## Where things are")[1].split("```")[1]
    paths, folder = [], ""
    for line in block.splitlines():
        if not line.strip():
            continue
        name = line.split()[0]
        if not line.startswith(" "):
            folder = name
            paths.append(name)
        else:
            paths.append(folder + name)
    return paths


@pytest.mark.parametrize("path", _tree())
def test_every_path_of_the_readme_tree_exists(path: str) -> None:
    target = ROOT / path
    assert target.exists()
    assert target.is_dir() == path.endswith("/")


def test_the_readme_tree_names_every_room_of_the_library() -> None:
    rooms = {f"pipeline/{p.name}/" for p in (ROOT / "pipeline").iterdir() if (p / "__init__.py").exists()}
    assert rooms <= set(_tree())


@pytest.mark.parametrize("path", re.findall(r"\| `((?:pipeline|evals|flows|infra)/[^`<]*)`", README))
def test_every_file_to_edit_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("line", re.findall(r"^tuneloop (.+?)(?:\s+#.*)?$", README, flags=re.MULTILINE))
def test_every_command_of_the_readme_is_one(line: str) -> None:
    words = line.split()
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("target", re.findall(r"^make ([a-z-]+)", README, flags=re.MULTILINE))
def test_every_make_target_of_the_readme_is_one(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_every_direct_dependency_is_pinned_and_has_its_reason_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    requirements = {r for group in groups for r in group if not r.startswith("tuneloop[")}
    assert all("==" in requirement for requirement in requirements)
    table = README.split("## Dependencies, and why")[1].lower()
    for requirement in requirements:
        name = requirement.split("==")[0].lower()
        assert name in table or (name.startswith("types-") and "types-*" in table), name


def test_the_lock_holds_every_direct_dependency_at_the_same_version() -> None:
    def key(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    lines = (ROOT / "requirements" / "lock.txt").read_text().splitlines()
    lock = {key(n): v for n, v in (line.split("==") for line in lines if "==" in line and not line.startswith("#"))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group in [project["dependencies"], *project["optional-dependencies"].values()]:
        for requirement in group:
            if requirement.startswith("tuneloop["):
                continue
            name, version = requirement.split("==")
            assert lock[key(name)] == version


def test_the_compose_file_names_images_that_are_here() -> None:
    compose = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        assert "image" in service or (ROOT / "infra" / service["build"]["context"]).is_dir(), name
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file(), name


def test_prefect_deployments_name_the_flow_and_every_shipped_business() -> None:
    prefect = yaml.safe_load((ROOT / "infra" / "prefect" / "prefect.yaml").read_text())
    assert {d["name"] for d in prefect["deployments"]} == {p.stem for p in (ROOT / "configs/businesses").glob("*.yaml")}
    for deployment in prefect["deployments"]:
        path, function = deployment["entrypoint"].split(":")
        assert f"def {function}(" in (ROOT / path).read_text()
        business = yaml.safe_load((ROOT / "configs/businesses" / f"{deployment['name']}.yaml").read_text())
        (schedule,) = deployment["schedules"]
        assert (schedule["cron"], schedule["timezone"]) == (business["nightly"], business["timezone"])
