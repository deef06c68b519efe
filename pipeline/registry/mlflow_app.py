"""MLflow's server, which also remembers who changes aliases: the `mlflow.app` plugin `tuneloop`.

`mlflow server --app-name tuneloop` finds it by the entry point in `pyproject.toml`. It asks people to log in when
MLflow's own `MLFLOW_AUTH_CONFIG_PATH` names a configuration; without a log-in nobody can know who clicked, and the
address is kept instead. `TUNELOOP_STATE_DIR` says where the control database is: MLflow calls a plugin without
arguments.
"""

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flask import Response, jsonify, request
from mlflow.exceptions import MlflowException
from mlflow.protos.model_registry_pb2 import DeleteRegisteredModelAlias, SetRegisteredModelAlias
from mlflow.server import app as flask_app
from mlflow.server.handlers import _get_request_message
from sqlalchemy.exc import SQLAlchemyError

from pipeline.control import open_control_in
from pipeline.registry.alias_log import AliasChange, AliasLog

logger = logging.getLogger(__name__)

_ALIAS_PATH = "/mlflow/registered-models/alias"
_MESSAGES = {"POST": SetRegisteredModelAlias, "DELETE": DeleteRegisteredModelAlias}


def create_app() -> Any:
    """The server as an ASGI application."""
    with_login = "MLFLOW_AUTH_CONFIG_PATH" in os.environ
    if with_login:
        from mlflow.server.auth import create_app as add_login

        server = add_login(flask_app)
    else:
        from mlflow.server.fastapi_app import app as server
    log = AliasLog(open_control_in(Path(os.environ["TUNELOOP_STATE_DIR"])))
    # Added last, so it sees only what the log-in let through.
    flask_app.before_request(lambda: remember(log.add, with_login))
    return server


def remember(add: Callable[[AliasChange], None], with_login: bool) -> Response | None:
    """Keep who changes an alias, before MLflow changes it; what cannot be kept is not changed.

    Returns:
        An answer in MLflow's form that ends the request, or None to let it through.
    """
    if request.url_rule is None or not request.url_rule.rule.endswith(_ALIAS_PATH) or request.method not in _MESSAGES:
        return None
    try:
        # Read by the handler's own reader, so that both see the same.
        asked = _get_request_message(_MESSAGES[request.method]())  # type: ignore[no-untyped-call]
        version = int(asked.version) if request.method == "POST" else None
    except (MlflowException, ValueError):
        return None  # MLflow refuses it itself, and says why
    try:
        add(AliasChange(datetime.now(UTC), asked.name, asked.alias, version, _who(with_login)))
    except SQLAlchemyError as error:
        logger.error("%s of %s not changed: the control database refuses: %s", asked.alias, asked.name, error)
        message = "tuneloop's control database takes no entry about who changes the alias; free some space, try again"
        refused = jsonify(error_code="TEMPORARILY_UNAVAILABLE", message=message)
        refused.status_code = 503
        return refused
    return None


def _who(with_login: bool) -> str:
    """A name only where it was checked: without a log-in a client can send any."""
    if with_login and request.authorization is not None:
        return str(request.authorization.username)
    return f"somebody at {request.remote_addr}"
