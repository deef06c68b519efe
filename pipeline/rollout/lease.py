"""Which of several controllers acts. The others follow, and one takes over when the holder falls silent.

No clocks are compared, neither hosts' nor the database's: the holder counts a beat in the database, and whoever sees
the same beat for `patience_s` of their own monotonic time takes the lease by compare-and-set. The holder stops
believing in it after the same time without a beat of its own. Each holder has a term, and what it writes is refused in
the same transaction once the term is over: a process that is stopped in the middle of a decision cannot write it later.
"""

import threading
import time
from collections.abc import Callable

from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.control import leases
from pipeline.errors import PipelineError, Transient

_NAME = "controller"
_NOBODY = ""


class LostLease(PipelineError, Transient):
    """Another controller has taken over: nothing was written."""


class Lease:
    """One controller's side of it. Owner of the table `leases`. Safe to use from several threads."""

    def __init__(
        self, engine: Engine, holder: str, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            holder: who this is, the same after a restart, so that one that was killed need not wait for itself; no two
                that run may share it.
            patience_s: how long a holder may be silent.
            clock: monotonic, in seconds.
        """
        self._engine = engine
        self._holder = holder
        self._patience_s = patience_s
        self._clock = clock
        self._alone = threading.Lock()
        self._term: int | None = None
        self._renewed_at = 0.0
        self._seen: tuple[int, int] | None = None
        """Term and beat of another holder."""
        self._seen_at = 0.0

    def hold(self) -> bool:
        """Beat, or take the lease when it is free or its holder has been silent; tell whether it is held."""
        with self._alone:
            began_at = self._clock()
            with self._engine.begin() as connection:
                held = self._beat(connection) or self._take(connection, began_at)
            if held:
                self._renewed_at = began_at
            else:
                self._term = None
            return held

    def is_held(self) -> bool:
        """Whether nobody else can have taken it yet, without asking the database."""
        return self._term is not None and self._clock() - self._renewed_at < self._patience_s

    def release(self) -> None:
        """Let another one take it at once."""
        with self._alone, self._engine.begin() as connection:
            connection.execute(
                update(leases).where(leases.c.name == _NAME, leases.c.term == self._term).values(holder=_NOBODY)
            )
            self._term = None

    def holder(self) -> str | None:
        """Who held it last; None when it is free."""
        with self._engine.connect() as connection:
            return connection.execute(select(leases.c.holder).where(leases.c.name == _NAME)).scalar() or None

    def check(self, connection: Connection) -> None:
        """Make a transaction that has written something fail, unless the lease is still held.

        Raises:
            LostLease: another one has it.
        """
        term = connection.execute(
            select(leases.c.term).where(leases.c.name == _NAME, leases.c.holder == self._holder).with_for_update()
        ).scalar()
        if term is None or term != self._term:
            raise LostLease("another controller leads now; this one decides nothing")

    def _beat(self, connection: Connection) -> bool:
        if self._term is None:
            return False
        mine = (leases.c.name == _NAME, leases.c.term == self._term, leases.c.holder == self._holder)
        return connection.execute(update(leases).where(*mine).values(beat=leases.c.beat + 1)).rowcount == 1

    def _take(self, connection: Connection, now: float) -> bool:
        found = connection.execute(
            select(leases.c.holder, leases.c.term, leases.c.beat).where(leases.c.name == _NAME)
        ).one_or_none()
        if found is None:
            return self._insert(connection)
        if self._seen != (found.term, found.beat):
            self._seen, self._seen_at = (found.term, found.beat), now
        silent = now - self._seen_at >= self._patience_s
        if found.holder not in (_NOBODY, self._holder) and not silent:
            return False
        unchanged = (leases.c.name == _NAME, leases.c.term == found.term, leases.c.beat == found.beat)
        values = {"holder": self._holder, "term": found.term + 1, "beat": 0}
        if connection.execute(update(leases).where(*unchanged).values(**values)).rowcount != 1:
            return False
        self._term = found.term + 1
        return True

    def _insert(self, connection: Connection) -> bool:
        try:
            with connection.begin_nested():
                connection.execute(insert(leases).values(name=_NAME, holder=self._holder, term=1, beat=0))
        except IntegrityError:
            return False
        self._term = 1
        return True
