"""Bringing one version to one business: `state` decides, `guardrails` judges the evidence, `store` remembers."""
