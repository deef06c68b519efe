"""The controller's client of the gateways' admin API."""

from collections.abc import Sequence

import httpx
from pydantic import TypeAdapter, ValidationError

from pipeline.errors import ServingError, Transient
from pipeline.gateway.guard import Trip
from pipeline.records import Routes

_TRIPS = TypeAdapter(tuple[Trip, ...])


class GatewayUnavailable(ServingError, Transient):
    """A gateway did not answer, or not as a gateway does."""


class Gateways:
    """All gateways, by the base URLs of their admin APIs."""

    def __init__(self, urls: Sequence[str], admin_key: str) -> None:
        self._urls = tuple(urls)
        self._client = httpx.Client(headers={"Authorization": f"Bearer {admin_key}"}, timeout=2.0)

    def push(self, routes: Routes) -> None:
        """Give every gateway the table.

        Raises:
            GatewayUnavailable: names the gateways that did not take it; the others did.
        """
        failed = []
        for url in self._urls:
            try:
                self._client.put(f"{url}/admin/routes", json=routes.model_dump(mode="json")).raise_for_status()
            except httpx.HTTPError as error:
                failed.append(f"{url} ({_reason(error)})")
        if failed:
            raise GatewayUnavailable(
                f"routes of generation {routes.generation} did not reach {', '.join(failed)}; they poll, and the "
                "next tick pushes again"
            )

    def trips(self) -> tuple[Trip, ...]:
        """Candidates that gateways stopped by themselves.

        Raises:
            GatewayUnavailable: one did not answer.
        """
        trips: list[Trip] = []
        for url in self._urls:
            try:
                answer = self._client.get(f"{url}/admin/trips").raise_for_status()
                trips += _TRIPS.validate_python(answer.json()["trips"])
            except httpx.HTTPError as error:
                raise GatewayUnavailable(f"{url}/admin/trips: {_reason(error)}; is the gateway up?") from error
            except (ValidationError, ValueError, KeyError, TypeError) as error:
                raise GatewayUnavailable(f"{url}/admin/trips did not answer as a gateway does; what is it?") from error
        return tuple(trips)


def _reason(error: httpx.HTTPError) -> str:
    """In one line."""
    if isinstance(error, httpx.HTTPStatusError):
        return " ".join(f"{error.response.status_code} {error.response.text}".split())[:200]
    return type(error).__name__
