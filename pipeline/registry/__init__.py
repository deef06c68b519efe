"""The model registry: one registered model per business, one version per trained adapter."""
