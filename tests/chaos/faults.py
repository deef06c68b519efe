"""Does what the schedule says, and notes how long each part was not what it should be."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.disk import Disk
from tests.chaos.history import Outage
from tests.chaos.schedule import ENGINES, Event, What
from tests.chaos.stack import Stack

_ASK_AGAIN_S = 0.5
_WHOLE_LIMIT_S = 120.0

Say = Callable[[str], None]


@dataclass
class Faults:
    """Plays a schedule; events of one lane do not overlap by more than a part takes to come back."""

    stack: Stack
    disk: Disk | None
    """None: the disk is never full."""
    say: Say
    outages: list[Outage] = field(default_factory=list)
    _alone: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def play(self, schedule: tuple[Event, ...]) -> None:
        """Until everything has happened and every part answers again."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as happening:
            for event in schedule:
                await asyncio.sleep(max(0.0, began + event.at_s - time.monotonic()))
                happening.create_task(self._do(event))

    async def _do(self, event: Event) -> None:
        lane = "engines" if event.target in ENGINES else event.target.split("-")[0]
        async with self._alone.setdefault(lane, asyncio.Lock()):
            self.say(str(event))
            match event.what:
                case What.PROMOTE:
                    await self._ask(lambda: self.stack.set_alias("promote", event.version))
                case What.RETURN:
                    await self._ask(lambda: self.stack.set_alias("rollback", event.version))
                case What.CALL:
                    await self._ask(self.stack.roll_back)
                case _:
                    await self._break(event)

    async def _ask(self, call: Callable[[], bool]) -> None:
        """Until somebody takes it, as a person does whose page shows an error."""
        while not await asyncio.to_thread(call):
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _break(self, event: Event) -> None:
        if event.what is What.FILL and self.disk is None:
            return
        outage = Outage(event.target, event.what, time.time())
        self.outages.append(outage)
        if event.what is What.FILL:
            assert self.disk is not None
            await asyncio.to_thread(self.disk.fill)
            await asyncio.sleep(event.lasts_s)
            self.disk.empty()
        else:
            part = self.stack.parts[event.target]
            down, back = (part.freeze, part.thaw) if event.what is What.HANG else (part.kill, part.start)
            await asyncio.to_thread(down)
            await asyncio.sleep(event.lasts_s)
            back()
            await asyncio.to_thread(part.wait)
            if event.target in ENGINES:
                await self._whole(event.target)
        outage.ended = time.time()
        self.say(f"{event.target} is back after {outage.ended - outage.began:.1f} s")

    async def _whole(self, engine: str) -> None:
        """Wait until the engine holds what is in service; not for ever, as the controller may be down."""
        deadline = time.monotonic() + _WHOLE_LIMIT_S
        while time.monotonic() < deadline:
            held = await asyncio.to_thread(self.stack.held, engine)
            if await asyncio.to_thread(self._in_service) <= set(held):
                return
            await asyncio.sleep(0.2)

    def _in_service(self) -> set[str]:
        routes = self.stack.store.routes().routes
        targets = [target for route in routes for target in (route.stable, route.candidate) if target]
        return {target.model for target in targets if target.version is not None}
