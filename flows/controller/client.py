"""The command line's client of the controller's API."""

from typing import Any

import httpx

from pipeline.config import Config, Settings
from pipeline.errors import ConfigError, RolloutRefused


class ControllerClient:
    """The controller of a configuration."""

    def __init__(self, config: Config, settings: Settings) -> None:
        address = config.system.controller
        self._url = f"http://{address.host}:{address.port}"
        self._headers = {"Authorization": f"Bearer {settings.admin_key.get_secret_value()}"}

    def get(self, path: str) -> Any:
        """What it tells, as JSON.

        Raises:
            ConfigError: it does not answer, or knows another admin key.
            RolloutRefused: it cannot tell; the message says why.
        """
        return self._send("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Have it do something.

        Raises:
            ConfigError: it does not answer, or knows another admin key.
            RolloutRefused: it does not do it, or not wholly; the message says why.
        """
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        url = self._url + path
        try:
            answer = httpx.request(method, url, json=body, headers=self._headers, timeout=30.0)
        except httpx.TransportError as error:
            why = str(error) or type(error).__name__
            raise ConfigError(
                f"the controller does not answer at {url} ({why}); start it with `tuneloop up`"
            ) from error
        if answer.status_code == 401:
            raise ConfigError(f"the controller at {url} knows another admin key; is TUNELOOP_ADMIN_KEY the one it has?")
        try:
            told = answer.json()
        except ValueError as error:
            raise ConfigError(f"{url} did not answer as a controller does; is `controller.port` right?") from error
        if answer.is_error:
            raise RolloutRefused(str(told.get("error", told)))
        return told
