"""One user taken out of every store, step by step; each step may be killed and is done again by the same command.

What is theirs is looked for first and written down as hashes (`pipeline.erase.ledger`) before anything is deleted: from
then on nothing of the user is collected again, and a second run knows what the first one was about.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from pydantic import JsonValue
from sqlalchemy import Engine

from evals.report.erased import without_examples, without_lost_reasons
from flows.lock import alone_to_erase
from flows.pages import amend
from pipeline.clean.sketches import Sketches
from pipeline.collect.quarantine import Quarantine
from pipeline.config import BusinessConfig
from pipeline.control import wipe_free_space
from pipeline.dataset.catalogue import list_snapshots
from pipeline.dataset.redaction import read_redactions, redact, rows_to_go
from pipeline.dataset.snapshot import read_manifest, read_snapshot
from pipeline.erase.erased import Erased, Kind, digest
from pipeline.erase.ledger import ErasureLedger, erasure_id
from pipeline.erase.log import forget_events, log_bytes
from pipeline.erase.scratch import forget_scratch
from pipeline.erase.trace import PASSES, Trace, trace
from pipeline.errors import DataError
from pipeline.gateway.arms import ArmStore
from pipeline.records import ModelVersion, Redaction, Split
from pipeline.registry.base import OUR_FILES, ModelRegistry
from pipeline.registry.tags import ERASED_MEASURED, ERASED_TRAINED
from pipeline.serving.proof import keep_texts, training_texts

Begin = Callable[[str, int], Callable[[int], None]]
"""Called with what begins and its size in bytes (0: it is short); returns what takes the bytes that are done."""


@dataclass(frozen=True)
class Places:
    """Where an erasure has to look."""

    state_dir: Path
    control: Engine
    registry: ModelRegistry
    arms: Sequence[ArmStore]

    def snapshots(self, business: str) -> Path:
        return self.state_dir / "snapshots" / business

    def page(self, version: ModelVersion) -> Path:
        """Of a version's decision."""
        return self.state_dir / "reports" / version.business / f"decision-v{version.version}.html"


@dataclass(frozen=True)
class SeenSnapshot:
    """A snapshot that holds, or held, rows of the user."""

    snapshot_id: str
    rows: Mapping[Split, int]
    shared: bool
    """Rows of theirs went before, in another erasure."""

    @property
    def trained(self) -> int:
        return self.rows.get(Split.TRAIN, 0)

    @property
    def measured(self) -> int:
        return sum(self.rows.values()) - self.trained


@dataclass(frozen=True)
class SeenVersion:
    """A model version that saw the user, or of which nobody can tell."""

    version: ModelVersion
    snapshot: SeenSnapshot | None
    parent: int | None
    """The version that it goes on from, if that one learned from the user."""
    other_files: tuple[str, ...]
    """Kept with it in the registry by somebody else: a person must look at them."""

    @property
    def learned(self) -> bool:
        return self.parent is not None or (
            self.snapshot is not None and (self.snapshot.trained > 0 or self.snapshot.shared)
        )


@dataclass(frozen=True)
class Plan:
    """What of a user there is. Counts and ids only."""

    erasure_id: str
    resumed: datetime | None
    """When it was begun, if it was killed on its way. What is theirs is on the list since then."""
    found: Trace
    """In the log; empty when it goes on."""
    erased: Erased
    findings: int
    scratch: int
    snapshots: tuple[SeenSnapshot, ...]
    versions: tuple[SeenVersion, ...]
    unknown: tuple[ModelVersion, ...]
    """Versions whose snapshot is not in the state folder: nobody can tell what they saw."""

    def events(self) -> dict[str, JsonValue]:
        """What is to go, for the audit trail."""
        return {
            "users": len(self.found.users),
            "interactions": self.found.own,
            "interactions of others or of nobody": self.found.of_others,
            "feedback": len(self.found.events),
        }

    def seen(self) -> dict[str, JsonValue]:
        """What saw them, for the audit trail."""
        return {
            "snapshots": [seen.snapshot_id for seen in self.snapshots],
            "versions": [seen.version.version for seen in self.versions],
        }

    @property
    def empty(self) -> bool:
        """Whether nothing at all is stored of the user."""
        found = self.found
        return not (self.resumed or found.own or found.of_others or found.events or self.findings or self.snapshots)


def erase(
    places: Places,
    about: BusinessConfig,
    users: Iterable[str],
    *,
    actor: str,
    now: datetime,
    begin: Begin,
    confirm: Callable[[Plan], bool],
    on_wait: Callable[[], None],
) -> Plan | None:
    """Erase users of one business. May be killed at any point and called again.

    Args:
        users: user keys.
        begin: tells of progress.
        confirm: shown what is there before anything is changed; False leaves everything as it is.
        on_wait: called before waiting for a night or another erasure to end.

    Returns:
        What there was; None when it was not confirmed.

    Raises:
        DataError: a snapshot cannot be read, or the database is in such use that deleted rows stay in its log.
        RegistryUnavailable: the registry does not answer; nothing was changed, or the same call goes on later.
    """
    business = about.business
    with alone_to_erase(places.state_dir, business, on_wait):
        plan = make_plan(places, business, users, begin)
        if not confirm(plan):
            return None
        ledger = ErasureLedger(places.control)
        name = plan.erasure_id
        if plan.resumed is None:
            ledger.begin(business, name, plan.found.digests(), actor=actor, found=plan.events(), now=now)
        _forget(places, about, plan, now, begin)
        if not wipe_free_space(places.control):
            raise DataError(
                f"{places.state_dir / 'control.db'}: read from without a pause, so that what was deleted still lies in "
                "its write-ahead log; run the same command again"
            )
        ledger.end(business, name, actor=actor, done=plan.seen(), now=now)
    return plan


def make_plan(places: Places, business: str, users: Iterable[str], begin: Begin) -> Plan:
    """Look for everything that is the users', and change nothing. Hold the business's lock."""
    users = frozenset(users)
    name = erasure_id(business, users)
    versions = places.registry.versions(business)  # first: when it does not answer, nothing is begun
    ledger = ErasureLedger(places.control)
    resumed = ledger.unfinished(name)
    found = Trace(business, users)
    if resumed is None:  # else part of it may be gone: the list says more than the log
        events_dir = places.state_dir / "events"
        tick = begin("looking through the event log", PASSES * log_bytes(events_dir, [business]))
        found = trace(events_dir, places.snapshots(business), business, users, tick)
    erased = Erased(ledger.erased(name).digests | found.digests())
    begin("looking through snapshots and versions", 0)
    snapshots = _seen_snapshots(places, business, erased, name, users)
    seen, unknown = _seen_versions(places, versions, snapshots)
    return Plan(
        erasure_id=name,
        resumed=resumed,
        found=found,
        erased=erased,
        findings=Quarantine(places.control).forget(business, erased, dry_run=True),
        scratch=forget_scratch(places.state_dir, business, dry_run=True),
        snapshots=tuple(snapshots.values()),
        versions=seen,
        unknown=unknown,
    )


def _forget(places: Places, about: BusinessConfig, plan: Plan, now: datetime, begin: Begin) -> None:
    """Every store, in an order in which none needs what another has lost."""
    business, events_dir = about.business, places.state_dir / "events"
    forget_events(events_dir, [business], plan.erased, begin("event log", log_bytes(events_dir, [business])))
    begin("quarantine, index of duplicates, conversations, scratch files", 0)
    Quarantine(places.control).forget(business, plan.erased)
    sketches = Sketches(places.state_dir / "duplicates", business)
    sketches.forget(lambda name: plan.erased.has(business, Kind.INTERACTION, name))
    for store in places.arms:
        store.forget(business, lambda session: plan.erased.has(business, Kind.CONVERSATION, session))
    forget_scratch(places.state_dir, business)
    for entry in list_snapshots(places.state_dir / "snapshots", business):
        begin(f"snapshot {entry.snapshot_id[:8]}", 0)
        redact(entry.folder, plan.erased, plan.erasure_id, now)
    for seen in plan.versions:
        begin(f"version {seen.version.version}", 0)
        _clean_version(places, about, seen)
        _mark_version(places, seen, plan.erasure_id, now)
    begin("reasons that pages quote", 0)
    for version in places.registry.versions(business):
        _clean_reasons(places, version)


def _seen_snapshots(
    places: Places, business: str, erased: Erased, name: str, users: Iterable[str]
) -> dict[str, SeenSnapshot]:
    keys = {digest(business, Kind.USER, user) for user in users}
    seen = {}
    for entry in list_snapshots(places.state_dir / "snapshots", business):
        if entry.manifest is None:
            raise DataError(f"{entry.folder}: cannot be read, so nobody can be erased from it; restore it or delete it")
        redactions = read_redactions(entry.folder)
        mine = next((one for one in redactions if one.erasure_id == name), None)
        rows = mine.rows if mine else rows_to_go(entry.folder, erased)
        shared = any(not keys.isdisjoint(one.users) for one in redactions if one.erasure_id != name)
        if any(rows.values()) or shared:
            seen[entry.snapshot_id] = SeenSnapshot(entry.snapshot_id, rows, shared)
    return seen


def _seen_versions(
    places: Places, versions: Sequence[ModelVersion], snapshots: Mapping[str, SeenSnapshot]
) -> tuple[tuple[SeenVersion, ...], tuple[ModelVersion, ...]]:
    """Those that saw the user, and those of which nobody can tell, oldest first: a parent comes before its children."""
    seen: list[SeenVersion] = []
    unknown = []
    learned: dict[str, int] = {}
    for version in versions:
        adapter = version.adapter
        snapshot = snapshots.get(adapter.snapshot_id)
        parent = learned.get(adapter.parent_sha256 or "")
        if snapshot is None and not (places.snapshots(version.business) / adapter.snapshot_id).is_dir():
            unknown.append(version)
        if snapshot is None and parent is None:
            continue
        others = tuple(
            name for name in places.registry.files(version.business, version.version) if name not in OUR_FILES
        )
        one = SeenVersion(version, snapshot, parent, others)
        if one.learned:
            learned[adapter.sha256] = version.version
        seen.append(one)
    return tuple(seen), tuple(unknown)


def _clean_version(places: Places, about: BusinessConfig, seen: SeenVersion) -> None:
    """Take the user's words out of what is kept with a version: probe texts, and answers on the decision's page."""
    version, registry = seen.version, places.registry
    if seen.snapshot is None:
        return
    snapshot = read_snapshot(places.snapshots(about.business) / seen.snapshot.snapshot_id)
    if version.fingerprint is not None:
        kept = keep_texts(version.fingerprint, training_texts(snapshot.rows[Split.TRAIN]))
        if kept != version.fingerprint:
            registry.record_fingerprint(about.business, version.version, kept)
    if seen.snapshot.measured or seen.snapshot.shared:
        amend(places.page(version), without_examples)
        page = registry.report(about.business, version.version)
        if page is not None and (cleaned := without_examples(page)) != page:
            registry.replace_report(about.business, version.version, cleaned)


def _clean_reasons(places: Places, version: ModelVersion) -> None:
    """Take reasons off a decision's page that its snapshot no longer quotes, also where the user's rows are elsewhere.

    The registry's copy goes first: a file that is clean says that both are.
    """
    folder = places.snapshots(version.business) / version.adapter.snapshot_id
    clean = partial(without_lost_reasons, manifest=read_manifest(folder) if folder.is_dir() else None)
    file = places.page(version)
    if file.is_file() and clean(text := file.read_text(encoding="utf-8")) == text:
        return
    page = places.registry.report(version.business, version.version)
    if page is not None and (cleaned := clean(page)) != page:
        places.registry.replace_report(version.business, version.version, cleaned)
    amend(file, clean)


def _mark_version(places: Places, seen: SeenVersion, name: str, now: datetime) -> None:
    """Tags say what it saw of all who are erased; the description gets a line for this erasure."""
    version, business = seen.version, seen.version.business
    redactions: tuple[Redaction, ...] = ()
    if seen.snapshot is not None:
        redactions = read_redactions(places.snapshots(business) / seen.snapshot.snapshot_id)
    trained = sum(one.rows.get(Split.TRAIN, 0) for one in redactions)
    measured = sum(sum(one.rows.values()) for one in redactions) - trained
    told = [f"{trained} rows"] if trained else []
    told += [] if seen.parent is None else [f"through version {seen.parent}"]
    tags = {ERASED_TRAINED: ", ".join(told), ERASED_MEASURED: f"{measured} rows" if measured else ""}
    day = next((one.at for one in redactions if one.erasure_id == name), now)
    places.registry.set_tags(business, version.version, {key: value for key, value in tags.items() if value})
    places.registry.add_note(business, version.version, f"Erasure {name[:8]} of {day:%Y-%m-%d}: {what_it_saw(seen)}.")


def what_it_saw(seen: SeenVersion) -> str:
    """In words, for a person."""
    snapshot = seen.snapshot
    words = []
    if snapshot is not None and snapshot.trained:
        words.append(f"trained on {snapshot.trained} rows of the user's conversations")
    if snapshot is not None and snapshot.measured:
        words.append(f"measured on {snapshot.measured}")
    if snapshot is not None and snapshot.shared:
        words.append("saw rows that went in an earlier erasure")
    if seen.parent is not None:
        words.append(f"goes on from version {seen.parent}, which learned from the user")
    return ", ".join(words)
