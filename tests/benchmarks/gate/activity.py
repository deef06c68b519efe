"""Who is how busy, and how much users differ."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Activity = Literal["even", "unequal"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def requests_of(rng: np.random.Generator, users: int, activity: Activity, most: int) -> Ints:
    """Requests of each user, at least one: one to four, or a Zipf tail in which one user may have most of them."""
    if activity == "even":
        return rng.integers(1, 5, size=users)
    return np.minimum(rng.zipf(1.7, size=users), most)


def tempers(rng: np.random.Generator, users: int) -> Floats:
    """How much more or less often each user meets or reports something; the mean is 1."""
    return rng.gamma(2.0, 0.5, size=users)
