"""Secrets. `Settings` is the only reader of the environment; it holds nothing else."""

from pathlib import Path

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipeline.errors import ConfigError


class JudgeSettings(BaseSettings):
    """The one secret that a comparison by hand needs."""

    model_config = SettingsConfigDict(env_prefix="TUNELOOP_", extra="ignore")

    judge_key: SecretStr = SecretStr("")
    """API key of the gate's judge, if it asks for one."""


class Settings(JudgeSettings):
    """Secrets, from the environment only. They are never written to a log, a config file or the registry."""

    user_salt: SecretStr
    """Salt of user, session and prompt keys; changing it makes every known user a new one."""
    admin_key: SecretStr
    """Key of the gateway's admin API."""
    webhook_secret: SecretStr
    """Signs MLflow's webhooks to the controller."""
    report_secret: SecretStr
    """Signs the links to reports."""
    engine_key: SecretStr = SecretStr("")
    """API key of the engines, if they were started with one."""
    mlflow_password: SecretStr = SecretStr("")
    """Of MLflow's account `admin`, in whose name tuneloop works there. Set, `tuneloop up` starts an MLflow that asks
    people to log in, so that it is known who clicked; empty, it asks nobody."""
    redis_url: SecretStr = SecretStr("")
    """Of the Redis that gateways of several hosts share, such as redis://:password@host:6379/0; empty on one host."""


SECRETS_FILE = "secrets.env"
"""In the state folder, owner-only: what `tuneloop up` made for one machine. The environment wins over it."""


def load_settings(state_dir: Path | None = None) -> Settings:
    """Read the secrets from the environment, or from the state folder's secrets file.

    Raises:
        ConfigError: one is missing; names the variables.
    """
    try:
        return Settings(_env_file=state_dir / SECRETS_FILE if state_dir else None)
    except ValidationError as error:
        missing = ", ".join(f"TUNELOOP_{str(e['loc'][0]).upper()}" for e in error.errors())
        raise ConfigError(
            f"environment: {missing} not set; `tuneloop up` makes secrets for one machine, elsewhere set them yourself"
        ) from error
