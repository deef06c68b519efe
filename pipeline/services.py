"""The only place that picks implementations of the ports. A function takes the one port that it uses, never the bag."""

from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.config import Config, Settings
from pipeline.control import open_control_in
from pipeline.registry.base import ModelRegistry
from pipeline.serving.base import AdapterServer


@dataclass(frozen=True)
class Services:
    """Everything outside the process that flows and controller talk to."""

    registry: ModelRegistry
    servers: dict[str, AdapterServer]
    """Engines by their name in the configuration."""
    control: Engine


def connect(config: Config, settings: Settings) -> Services:
    """Build the clients. Nothing is contacted yet."""
    from pipeline.registry.mlflow import MlflowRegistry
    from pipeline.serving.vllm import VllmServer

    key = settings.engine_key.get_secret_value() or None
    return Services(
        registry=MlflowRegistry(config.system.mlflow.url, settings.mlflow_password.get_secret_value()),
        servers={
            engine.name: VllmServer(engine.url, config.system.base_model.id, api_key=key)
            for engine in config.system.engines
        },
        control=open_control_in(config.state_dir),
    )
