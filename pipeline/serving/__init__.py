"""Engines and the adapters on them: validated from files, loaded over HTTP, proven by log-probabilities."""
