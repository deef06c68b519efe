"""What processes that tuneloop starts find in their environment."""

import os

from pipeline.config.load import Config
from pipeline.config.settings import Settings

_QUIET_AND_OFFLINE = {
    "DO_NOT_TRACK": "1",
    "GIT_PYTHON_REFRESH": "quiet",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # Two OpenMP threads on two shared cores are 5 to 15 times slower than one: they spin at every barrier.
    "OMP_NUM_THREADS": "1",
}


def child_environment(config: Config, settings: Settings) -> dict[str, str]:
    """The environment of a process that tuneloop starts: the caller's, the secrets, no telemetry, no network."""
    secrets = {
        f"TUNELOOP_{name.upper()}": getattr(settings, name).get_secret_value() for name in type(settings).model_fields
    }
    return {
        **os.environ,
        **_QUIET_AND_OFFLINE,
        **secrets,
        "MLFLOW_TRACKING_URI": config.system.mlflow.url,
        "PREFECT_API_URL": f"{config.system.prefect.url}/api",
    }
