"""Drafts to clean records, a chunk of sessions at a time, in this process or spread over several.

A session is never cut, since its placeholders belong together. Chunks keep what is looked at together small; what they
come to does not depend on where they are cut or who does them.
"""

import logging
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.clean.facts import facts_hash
from pipeline.clean.pii.placeholders import Scrubbed, ScrubFailure, Texts, find_all, scrub_conversation
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import PiiDetector
from pipeline.clean.text import compared_texts
from pipeline.errors import DataError, Transient
from pipeline.records import CleanRecord, Dropped, DropReason, FeedbackKind, RatedInteraction, Signal

log = logging.getLogger(__name__)

_CHUNK = 256
"""Drafts that are looked at together."""


class WorkersLost(DataError, Transient):
    """A process that cleaned died."""


@dataclass(frozen=True)
class Draft:
    """A rated interaction whose quality passed, with its texts repaired and not yet scrubbed."""

    rated: RatedInteraction
    texts: Texts
    signals: tuple[Signal, ...]
    """Those about the rated choice; `texts.notes` holds, for each, its value if that is free text, and its reason."""

    @property
    def edit(self) -> str | None:
        """The text of the latest edit, as it was written."""
        return latest_edit(self.signals, self.texts.notes)


Chunk: TypeAlias = Sequence[Sequence[Draft]]
"""Whole sessions, each in its order in time."""


@dataclass(frozen=True)
class Scrubber:
    """What cleaning a chunk takes besides the chunk; it is sent to other processes as a whole."""

    detector: PiiDetector
    rules: Rules | None
    fixed: frozenset[str]
    """System prompts that are the business's own text."""
    facts_key: bytes

    def __call__(self, chunk: Chunk) -> list[CleanRecord | Dropped]:
        """One record or one reason for each draft."""
        findings = find_all((draft.texts for session in chunk for draft in session), self.detector, self.fixed)
        cleaned: list[CleanRecord | Dropped] = []
        for session in chunk:
            results = scrub_conversation([draft.texts for draft in session], findings, self.fixed, self.rules)
            for draft, result in zip(session, results, strict=True):
                cleaned.append(
                    _failed(draft, result) if isinstance(result, ScrubFailure) else self._record(draft, result)
                )
        return cleaned

    def _record(self, draft: Draft, scrubbed: Scrubbed) -> CleanRecord:
        interaction, texts = draft.rated.interaction, scrubbed.texts
        written = compared_texts(draft.texts.messages, draft.texts.answer, draft.edit)
        signals = (
            signal.model_copy(update={"value": signal.value if value is None else value, "reason": reason})
            for signal, value, reason in zip(draft.signals, texts.notes[0::2], texts.notes[1::2], strict=True)
        )
        return CleanRecord(
            interaction_id=interaction.interaction_id,
            business=interaction.business,
            session=interaction.session,
            user_key=interaction.user_key,
            model_version=interaction.model_version,
            at=interaction.started_at,
            messages=texts.messages,
            tools=texts.tools,
            answer=texts.answer,
            edited=latest_edit(draft.signals, texts.notes),
            signals=tuple(signals),
            replaced_by=draft.rated.replaced_by,
            pii_counts=dict(scrubbed.counts),
            facts=facts_hash(written, scrubbed.replaced, self.facts_key),
        )


def scrub_all(
    sessions: Sequence[Sequence[Draft]],
    scrubber: Scrubber,
    processes: int,
    tell: Callable[[int, int], None] | None = None,
) -> Iterator[CleanRecord | Dropped]:
    """One record or one reason for each draft, session by session.

    Args:
        sessions: whole ones.
        scrubber: must be picklable when there are several processes.
        processes: 1 is this process; each other one loads a detector of its own (seconds, about 500 MB).
        tell: told now and then how many drafts of how many are done.

    Raises:
        WorkersLost: a process died, for want of memory most likely.
        DataError: a pattern of the rules is too slow to be used.
    """
    done, of = 0, sum(map(len, sessions))
    for cleaned in _map(scrubber, list(_chunks(sessions)), processes):
        yield from cleaned
        done += len(cleaned)
        if tell is not None:
            tell(done, of)


def latest_edit(signals: Sequence[Signal], notes: Sequence[str | None]) -> str | None:
    """The text of the latest edit among signals whose values stand in `notes` (see `Draft.signals`)."""
    edits = [at for at, s in enumerate(signals) if s.kind is FeedbackKind.EDIT and notes[2 * at] is not None]
    return notes[2 * max(edits, key=lambda at: signals[at].occurred_at)] if edits else None


def _map(scrubber: Scrubber, chunks: Sequence[Chunk], processes: int) -> Iterator[list[CleanRecord | Dropped]]:
    if processes == 1 or len(chunks) == 1:
        yield from map(scrubber, chunks)
        return
    # Threads of a flow may hold locks: a forked process would never get them.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(scrubber,)) as pool:
            yield from pool.map(_in_worker, chunks)
    except BrokenProcessPool as error:
        raise WorkersLost(
            f"cleaning: one of {processes} processes died; see that there are 500 MB of memory for each"
        ) from error


_of_this_process: Scrubber | None = None


def _begin(scrubber: Scrubber) -> None:
    global _of_this_process
    _of_this_process = scrubber


def _in_worker(chunk: Chunk) -> list[CleanRecord | Dropped]:
    assert _of_this_process is not None
    return _of_this_process(chunk)


def _chunks(sessions: Iterable[Sequence[Draft]]) -> Iterator[Chunk]:
    chunk: list[Sequence[Draft]] = []
    for session in sessions:
        chunk.append(session)
        if sum(map(len, chunk)) >= _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _failed(draft: Draft, failure: ScrubFailure) -> Dropped:
    name = draft.rated.interaction.interaction_id
    return Dropped(interaction_id=name, reason=DropReason.SCRUB_FAILED, detail=failure.detail)
