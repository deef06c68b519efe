"""The chaos test: real processes under live streams while parts are killed, hang, or find the disk full.

`schedule` says when what breaks (pure: the same seed, the same schedule), `stack` runs the processes, `faults` breaks
them, `load` are the users, `ending` looks at what is left, and `checks` (pure) holds it all against what was promised.
"""

import os

os.environ |= {"MLFLOW_LOGGING_LEVEL": "WARNING", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}  # it is read once
