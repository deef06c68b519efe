"""Every error that tuneloop raises on purpose.

    PipelineError
    ├── ConfigError       a configuration value is unknown, impossible or missing
    ├── DataError         an input cannot be read, or a snapshot cannot be built from it
    ├── TrainingError     a training run failed or diverged; nothing was registered
    ├── ServingError      an engine refused, is unreachable, or serves something else than it says
    ├── RegistryError     the model registry refused or holds something inconsistent
    └── RolloutRefused    a command about a rollout cannot be carried out as things are

A message says what, which value, where, and what to do next, in one line. Add `Transient` to a class to say
that the same call may succeed when it is repeated: it is the only thing that decides on retries.
"""


class PipelineError(Exception):
    """Base of all errors raised on purpose; the command line prints its message and no traceback."""


class Transient(Exception):
    """Mix-in: the same call may succeed when it is repeated."""


class ConfigError(PipelineError):
    """A configuration value is unknown, impossible or missing."""


class DataError(PipelineError):
    """An input cannot be read, or no snapshot can be built from it."""


class TrainingError(PipelineError):
    """A training run failed or diverged; nothing was registered."""


class ServingError(PipelineError):
    """An engine refused, or serves something else than it says."""


class EngineUnavailable(ServingError, Transient):
    """An engine did not answer in time, or answered that it is overloaded."""


class RegistryError(PipelineError):
    """The model registry refused, or holds something inconsistent."""


class RegistryUnavailable(RegistryError, Transient):
    """The model registry did not answer, or the disk had no room for what it gave."""


class RolloutRefused(PipelineError):
    """A command about a rollout cannot be carried out as things are."""
