"""What a registry keeps: the same tests over a real MLflow server and over the one in memory.

All tests share one server, so each has a business of its own.
"""

import logging
from pathlib import Path

import pytest

from pipeline.errors import RegistryError, RegistryUnavailable
from pipeline.records import Fingerprint, GateDecision, Verdict
from pipeline.registry.base import ADAPTER, ADAPTER_PATHS, OUR_FILES, TRAINING, ModelRegistry
from pipeline.registry.memory import MemoryRegistry
from pipeline.registry.mlflow import MlflowRegistry
from pipeline.registry.tags import ERASED_MEASURED, ERASED_TRAINED
from tests.conftest import free_port
from tests.registering import Maker, a_training_run

FINGERPRINT = Fingerprint(texts=("你好",), base_logprobs=(-3.5,), adapter_logprobs=(-1.25,))


@pytest.fixture(scope="module", params=["memory", pytest.param("mlflow", marks=pytest.mark.servers)])
def registry(request: pytest.FixtureRequest) -> ModelRegistry:
    if request.param == "memory":
        return MemoryRegistry()
    return MlflowRegistry(request.getfixturevalue("mlflow_url"))


def test_a_business_without_versions(registry: ModelRegistry, maker: Maker) -> None:
    assert registry.versions(maker.business) == ()
    assert registry.aliases(maker.business) == {}
    registry.drop_alias(maker.business, "champion", 1)
    with pytest.raises(RegistryError):
        registry.get(maker.business, 1)


def test_a_registered_adapter_comes_back_whole(registry: ModelRegistry, maker: Maker, tmp_path: Path) -> None:
    adapter, folder = maker.adapter()
    version = registry.register(adapter, folder, {"rank": "8"}, "sft on 50 rows of 9 users")
    assert (version.business, version.version, version.gate) == (maker.business, 1, "pending")
    assert (version.adapter, version.fingerprint, version.aliases) == (adapter, None, ())
    assert registry.get(maker.business, 1) == version
    fetched = registry.fetch(version, tmp_path / "adapters")
    assert fetched == tmp_path / "adapters" / adapter.sha256
    assert {path.name: path.read_bytes() for path in fetched.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    assert [path.name for path in (tmp_path / "adapters").iterdir()] == [adapter.sha256]


def test_registering_again_returns_the_version_that_exists(registry: ModelRegistry, maker: Maker) -> None:
    first = registry.register(*maker.adapter(1), {}, "one")
    second = registry.register(*maker.adapter(2), {}, "two")
    assert registry.register(*maker.adapter(1), {}, "one again") == first
    assert registry.versions(maker.business) == (first, second)
    assert [version.version for version in (first, second)] == [1, 2]


def test_files_that_are_not_the_adapter_are_not_registered(registry: ModelRegistry, maker: Maker) -> None:
    adapter, _ = maker.adapter(1)
    _, other = maker.adapter(2)
    with pytest.raises(RegistryError, match=adapter.sha256[:12]):
        registry.register(adapter, other, {}, "mixed up")
    with pytest.raises(RegistryError, match="cannot read"):
        registry.register(adapter, other.parent / "absent", {}, "lost")
    assert registry.versions(maker.business) == ()


def test_a_damaged_folder_is_neither_used_nor_touched(registry: ModelRegistry, maker: Maker, tmp_path: Path) -> None:
    version = registry.register(*maker.adapter(), {}, "one")
    weights = registry.fetch(version, tmp_path / "adapters") / "adapter_model.safetensors"
    weights.write_bytes(b"something else")
    with pytest.raises(RegistryError, match="move that folder away"):
        registry.fetch(version, tmp_path / "adapters")
    assert weights.read_bytes() == b"something else"


def test_aliases_move_and_go(registry: ModelRegistry, maker: Maker) -> None:
    for seed in (1, 2):
        registry.register(*maker.adapter(seed), {}, "one")
    registry.set_alias(maker.business, "champion", 1)
    registry.set_alias(maker.business, "promote", 2)
    registry.set_alias(maker.business, "champion", 2)
    assert registry.aliases(maker.business) == {"champion": 2, "promote": 2}
    assert registry.get(maker.business, 2).aliases == ("champion", "promote")
    assert [version.aliases for version in registry.versions(maker.business)] == [(), ("champion", "promote")]
    registry.drop_alias(maker.business, "promote", 1)  # somebody moved it to 2 meanwhile
    assert registry.aliases(maker.business) == {"champion": 2, "promote": 2}
    for _ in range(2):
        registry.drop_alias(maker.business, "promote", 2)
    assert registry.aliases(maker.business) == {"champion": 2}
    with pytest.raises(RegistryError):
        registry.set_alias(maker.business, "champion", 7)
    assert registry.aliases(maker.business) == {"champion": 2}


def test_fingerprint_verdict_and_override_are_kept(registry: ModelRegistry, maker: Maker) -> None:
    registry.register(*maker.adapter(), {}, "one")
    registry.record_fingerprint(maker.business, 1, FINGERPRINT)
    assert registry.get(maker.business, 1).fingerprint == FINGERPRINT
    changed = FINGERPRINT.model_copy(update={"adapter_logprobs": (-1.5,)})
    registry.record_fingerprint(maker.business, 1, changed)
    assert registry.get(maker.business, 1).fingerprint == changed
    decision, report = maker.decision(Verdict.REJECT)
    for _ in range(2):
        registry.record_decision(decision, 1, report)
    assert registry.get(maker.business, 1).gate is Verdict.REJECT
    assert registry.get(maker.business, 1).override is None
    registry.set_tags(maker.business, 1, {"override": "ann: needed today"})
    assert registry.versions(maker.business)[0].override == "ann: needed today"
    for _ in range(2):
        registry.drop_tag(maker.business, 1, "override")
    assert registry.versions(maker.business)[0].override is None


def test_a_report_can_be_replaced_and_a_note_outlives_a_new_verdict(registry: ModelRegistry, maker: Maker) -> None:
    registry.register(*maker.adapter(), {}, "sft on 50 rows")
    assert registry.report(maker.business, 1) is None
    assert set(registry.files(maker.business, 1)) == {ADAPTER, *ADAPTER_PATHS}
    for _ in range(2):
        registry.record_decision(*with_version(maker.decision()))
        registry.add_note(maker.business, 1, "Erasure of one user.")
    registry.record_training(maker.business, 1, a_training_run(maker, maker.adapter()[0]))
    registry.record_fingerprint(maker.business, 1, FINGERPRINT)
    assert registry.report(maker.business, 1) == "<p>更好</p>"
    registry.replace_report(maker.business, 1, "<p>少了</p>")
    assert registry.report(maker.business, 1) == "<p>少了</p>"
    assert set(registry.files(maker.business, 1)) == OUR_FILES
    assert description_of(registry, maker.business) == (
        "sft on 50 rows\n\nGate: promote. It is better by 0.2.\n\nErasure of one user."
    )


def test_how_a_version_was_trained_is_kept_with_it(registry: ModelRegistry, maker: Maker) -> None:
    adapter, folder = maker.adapter()
    registry.register(adapter, folder, {}, "one")
    for _ in range(2):
        registry.record_training(maker.business, 1, a_training_run(maker, adapter))
    assert set(registry.files(maker.business, 1)) == {ADAPTER, TRAINING, *ADAPTER_PATHS}
    with pytest.raises(RegistryError):
        registry.record_training(maker.business, 3, a_training_run(maker, adapter))


def test_a_version_that_learned_from_an_erased_user_says_so(registry: ModelRegistry, maker: Maker) -> None:
    registry.register(*maker.adapter(), {}, "one")
    assert not registry.get(maker.business, 1).learned_erased
    registry.set_tags(maker.business, 1, {ERASED_MEASURED: "1 rows"})
    assert not registry.get(maker.business, 1).learned_erased
    registry.set_tags(maker.business, 1, {ERASED_TRAINED: "2 rows"})
    assert registry.get(maker.business, 1).learned_erased


def description_of(registry: ModelRegistry, business: str) -> str:
    """What people read of the first version."""
    if isinstance(registry, MemoryRegistry):
        return registry.entries[business, 1].description
    assert isinstance(registry, MlflowRegistry)
    return str(registry._client.get_model_version(business, "1").description)


def with_version(decided: tuple[GateDecision, Path]) -> tuple[GateDecision, int, Path]:
    decision, report = decided
    return decision, 1, report


def test_what_does_not_exist_is_refused(registry: ModelRegistry, maker: Maker, tmp_path: Path) -> None:
    decision, report = maker.decision()
    with pytest.raises(RegistryError):
        registry.record_decision(decision, 3, report)
    with pytest.raises(RegistryError):
        registry.record_fingerprint(maker.business, 3, FINGERPRINT)
    with pytest.raises(RegistryError):
        registry.set_tags(maker.business, 3, {"who": "ann"})
    with pytest.raises(RegistryError):
        registry.add_note(maker.business, 3, "ann was here")
    with pytest.raises(RegistryError):
        registry.report(maker.business, 3)
    registry.register(*maker.adapter(), {}, "one")
    with pytest.raises(RegistryError, match="cannot read the report"):
        registry.record_decision(decision, 1, tmp_path / "absent.html")
    assert registry.get(maker.business, 1).gate == "pending"


def test_a_tag_that_is_no_verdict_counts_as_none(
    registry: ModelRegistry, maker: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register(*maker.adapter(), {}, "one")
    registry.set_tags(maker.business, 1, {"gate": "looks fine to me"})
    with caplog.at_level(logging.WARNING):
        assert registry.get(maker.business, 1).gate == "pending"
    assert "is no verdict" in caplog.text


def test_a_registry_that_is_down_may_be_asked_again(maker: Maker, tmp_path: Path) -> None:
    for registry in (MemoryRegistry(available=False), MlflowRegistry(f"http://127.0.0.1:{free_port()}")):
        with pytest.raises(RegistryUnavailable):
            registry.aliases(maker.business)
        with pytest.raises(RegistryUnavailable):
            registry.register(*maker.adapter(), {}, "one")
