"""The configuration folder as typed values. All its mistakes are collected before one error names them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline.config.business import BusinessConfig
from pipeline.config.system import SystemConfig
from pipeline.errors import ConfigError
from pipeline.records import Record


class Config(Record):
    """The whole configuration; functions take the section they need."""

    directory: Path
    system: SystemConfig
    businesses: dict[str, BusinessConfig]

    @property
    def state_dir(self) -> Path:
        """Absolute: processes started from elsewhere mean the same folder."""
        return self.system.state_dir.resolve()

    def business(self, key: str) -> BusinessConfig:
        """The business's configuration.

        Raises:
            ConfigError: there is no such business.
        """
        if key not in self.businesses:
            known = ", ".join(sorted(self.businesses))
            raise ConfigError(f"no business '{key}' in {self.directory / 'businesses'}; known: {known}")
        return self.businesses[key]


def load_config(directory: Path) -> Config:
    """Read and check a configuration folder.

    Raises:
        ConfigError: names every wrong file, key and value, and what would be right.
    """
    if not (directory / "tuneloop.yaml").is_file():
        raise ConfigError(f"{directory / 'tuneloop.yaml'}: no such file; name the folder with --configs")
    mistakes: list[str] = []
    system = _read(directory / "tuneloop.yaml", SystemConfig, mistakes)
    if system and system.training.launch and not (directory / system.training.launch).is_file():
        name = directory / "tuneloop.yaml"
        mistakes.append(f"{name}: training.launch: '{system.training.launch}' is no file under {directory}")
    businesses: dict[str, BusinessConfig] = {}
    for path in sorted((directory / "businesses").glob("*.yaml")):
        config = _read(path, BusinessConfig, mistakes)
        if config is None:
            continue
        if config.business != path.stem:
            mistakes.append(f"{path}: business: '{config.business}' must be the file's name '{path.stem}'")
        if config.suite and not (directory / config.suite).is_file():
            mistakes.append(f"{path}: suite: '{config.suite}' is no file under {directory}")
        if system and config.training.rank > max(e.max_rank for e in system.engines if e.serves != "base"):
            mistakes.append(f"{path}: training.rank: {config.training.rank} is above every engine's max_rank")
        businesses[config.business] = config
    if not businesses and not mistakes:
        mistakes.append(f"{directory / 'businesses'}: no business; add a file such as support.yaml")
    if mistakes or system is None:
        raise ConfigError("\n".join(mistakes))
    return Config(directory=directory, system=system, businesses=businesses)


def load_business(path: Path) -> BusinessConfig:
    """Read and check one file of `businesses/` by itself.

    Raises:
        ConfigError: there is no such file, or it holds wrong keys or values; names them all.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; name one of a configuration's `businesses/`")
    mistakes: list[str] = []
    config = _read(path, BusinessConfig, mistakes)
    if config is None:
        raise ConfigError("\n".join(mistakes))
    return config


_Section = TypeVar("_Section", bound=Record)


def _read(path: Path, kind: type[_Section], mistakes: list[str]) -> _Section | None:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mistakes.append(f"{path}: not readable as YAML: {' '.join(str(error).split())}")
        return None
    if not isinstance(value, Mapping):
        mistakes.append(f"{path}: must hold `key: value` lines, found {type(value).__name__}")
        return None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        mistakes.extend(_explain(path, e) for e in error.errors())
        return None


def _explain(path: Path, error: ErrorDetails) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "(whole file)"
    if error["type"] == "extra_forbidden":
        return f"{path}: {key}: unknown key (value {error['input']!r}); remove it or mend its spelling"
    if error["type"] == "missing":
        return f"{path}: {key}: missing; add it"
    return f"{path}: {key}: {error['input']!r} is impossible: {error['msg']}"
