"""Is the candidate better? Scores answers of two endpoints to the same items and decides, offline and in a canary."""
