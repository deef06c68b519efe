"""What never changes about versions (adapter and serving name), remembered, so that a rollback needs no registry."""

from collections.abc import Collection

from pipeline.records import ModelVersion
from pipeline.registry.base import ModelRegistry


class VersionBook:
    """Versions as they were last read. Their gate, tags and aliases do change: read those afresh with `refresh`."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry
        self._known: dict[tuple[str, int], ModelVersion] = {}

    def refresh(self, business: str) -> tuple[ModelVersion, ...]:
        """All versions of the business, oldest first, from the registry."""
        versions = self._registry.versions(business)
        self._known.update({(version.business, version.version): version for version in versions})
        return versions

    def get(self, business: str, number: int) -> ModelVersion:
        """One version, from memory or from the registry.

        Raises:
            RegistryError: it is not in memory, and not to be had.
        """
        if (business, number) not in self._known:
            self._known[business, number] = self._registry.get(business, number)
        return self._known[business, number]

    def find(self, business: str, number: int) -> ModelVersion | None:
        """One version, from memory alone."""
        return self._known.get((business, number))

    def judged(self, businesses: Collection[str]) -> frozenset[str]:
        """Serving names of these businesses' versions that are past the gate."""
        versions = (version for version in self._known.values() if version.business in businesses)
        return frozenset(version.serving_name for version in versions if version.gate != "pending")
