"""Training against TRL's plain trainers: the same rows, the same steps, each run in a process of its own."""
