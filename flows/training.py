"""`tuneloop train`: a training again, from the file that its version keeps."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.options import CONFIGS
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.records import Adapter, BaseModelRef
    from pipeline.train.training import Training, TrainingRun


@click.command()
@CONFIGS
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--into",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the adapter. An empty one has it trained anew.",
)
def train(configs: Path, file: Path, into: Path) -> None:
    """Train again what FILE describes, and say whether the same adapter comes out.

    FILE is `training.json` among the artifacts of a version's run in MLflow. Its snapshot must still be in the state
    folder, whole. Nothing is registered, and nothing in service changes.

    \b
    Try:  tuneloop train training.json --into again

    The same device and packages give the same bytes; otherwise the differences are named. Exits with 1 when another
    adapter came out.
    """
    from rich.console import Console
    from rich.progress import Progress

    from pipeline.config import load_config
    from pipeline.train.process import train_adapter, training_run_path
    from pipeline.train.training import read_training_run

    noted = read_training_run(file)
    config = load_config(configs)
    config.business(noted.training.business)
    base = _base(config, noted.training)
    parent = _parent(config, noted.training)
    console = Console(highlight=False, markup=False)
    with Progress(console=console) as progress:
        task = progress.add_task("training", total=None)
        adapter = train_adapter(
            config.state_dir / "snapshots" / noted.training.business / noted.training.snapshot_id,
            noted.training.recipe,
            base,
            config.system.base_model.path,
            parent,
            into,
            into / "work",
            lambda done, of, loss: progress.update(task, completed=done, total=of, description=f"loss {loss:.3f}"),
            config.directory / config.system.training.launch if config.system.training.launch else None,
        )
    if adapter.sha256 == noted.adapter_sha256:
        console.print(f"the same adapter: {into / adapter.sha256}", soft_wrap=True)
        return
    found = read_training_run(training_run_path(into, adapter.training_id))
    console.print(f"another adapter: {into / adapter.sha256}, not {noted.adapter_sha256[:12]}", soft_wrap=True)
    console.print(f"what differs: {_differences(noted, found) or 'neither device nor packages'}", soft_wrap=True)
    raise SystemExit(1)


def _base(config: "Config", training: "Training") -> "BaseModelRef":
    from pipeline.train.base_ref import base_model_ref

    model, wanted = config.system.base_model, training.base
    base = base_model_ref(model.path, model.id, model.revision)
    if base != wanted:
        raise ConfigError(
            f"it was trained on base {wanted.id}@{wanted.revision} ({wanted.digest[:12]}), tuneloop.yaml names "
            f"{base.id}@{base.revision} ({base.digest[:12]}); name the base of then"
        )
    return base


def _parent(config: "Config", training: "Training") -> "tuple[Adapter, Path] | None":
    """The adapter that it started from, from the registry."""
    if training.parent_sha256 is None:
        return None
    from pipeline.config import load_settings
    from pipeline.services import connect

    registry = connect(config, load_settings(config.state_dir)).registry
    for version in registry.versions(training.business):
        if version.adapter.sha256 == training.parent_sha256:
            return version.adapter, registry.fetch(version, config.state_dir / "adapters")
    raise ConfigError(f"no version of '{training.business}' holds {training.parent_sha256[:12]}, which it started from")


def _differences(noted: "TrainingRun", found: "TrainingRun") -> str:
    then, now = ({"device": run.device, **run.packages} for run in (noted, found))
    return ", ".join(f"{name} {then.get(name)} -> {now[name]}" for name in now if now[name] != then.get(name))
