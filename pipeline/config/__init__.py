"""Configuration: YAML files and the environment become typed values; an impossible value stops here.

`load_config(directory)` reads `tuneloop.yaml` and every file of `businesses/`, collects *all* mistakes and raises
one `ConfigError` that names file, key, value and mend.
"""

from pipeline.config.business import BusinessConfig, DatasetConfig, LimitsConfig, PoisonConfig, Priority
from pipeline.config.child import child_environment
from pipeline.config.gate import GateConfig, JudgeConfig, ProbesConfig
from pipeline.config.load import Config, load_business, load_config
from pipeline.config.rollout import RolloutConfig, ShadowConfig, StepConfig
from pipeline.config.settings import SECRETS_FILE, JudgeSettings, Settings, load_settings
from pipeline.config.system import (
    BaseModelConfig,
    BurstConfig,
    ControllerConfig,
    EngineConfig,
    GatewayConfig,
    SystemConfig,
    TracingConfig,
)

__all__ = [
    "SECRETS_FILE",
    "BaseModelConfig",
    "BurstConfig",
    "BusinessConfig",
    "Config",
    "ControllerConfig",
    "DatasetConfig",
    "EngineConfig",
    "GateConfig",
    "GatewayConfig",
    "JudgeConfig",
    "JudgeSettings",
    "LimitsConfig",
    "PoisonConfig",
    "Priority",
    "ProbesConfig",
    "RolloutConfig",
    "Settings",
    "ShadowConfig",
    "StepConfig",
    "SystemConfig",
    "TracingConfig",
    "child_environment",
    "load_business",
    "load_config",
    "load_settings",
]
