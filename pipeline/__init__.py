"""The library: what happens to a user's feedback until it is a better adapter in service.

Path of data, one package a step::

    gateway -> events -> collect -> clean -> dataset -> train -> registry -> serving -> rollout -> gateway

Every value that crosses a step is a record in `pipeline.records`. Nothing in here knows Prefect, prints,
or reads the environment outside `pipeline.config`.
"""
