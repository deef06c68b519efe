"""What must happen whatever a model says: a killed night ends like a whole one, an erased user is gone, a version that
the gate did not pass cannot be promoted, a bad canary is taken back, poison is held, nothing private and nothing of the
other business is in what was learned.

Played with a tiny model of random weights on the real gateway, vLLM, MLflow, Prefect and controller.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from evals.worlds.content import Content, load_content
from examples.demo import checks
from examples.demo.stages import Demo, load, run_night, save, talk
from examples.demo.tally import Tally
from flows.lock import at_gate
from pipeline.gateway.ids import Ids
from pipeline.records import Night, Verdict
from pipeline.registry.base import ModelRegistry
from pipeline.services import Services
from tests.conftest import running_server
from tests.erasure_world import found_in
from tests.proof.real.canary import taken_back
from tests.proof.real.killed import End, killed_night, whole_night
from tests.proof.real.place import configure, edit, running, tuneloop
from tests.proof.real.stage import Stage, once
from tests.proof.real.steered import held_rows, steer
from tests.proof.rows import FOLDER, Row
from tests.tiny_model import make_tiny_model

BUSINESS, OTHER = "support", "kefu"
_SECRET = {BUSINESS: "Ticket opened.", OTHER: "工单已建"}
"""What each business's users put into every correction; nothing of it may come to the other."""
_PERSONAL = "ids, phones, cards, mail in snapshots, adapters, reports, logs"
_REFUSED_WITHIN_S = 60.0
SEEDS = "1"
"""What the page says of them."""
Tell = Callable[[str], None]


def prove(tell: Tell, _seeds: int) -> Iterator[Stage]:
    """All of it on one stack, in the order of one story; a run that was stopped goes on where it was. No seeds: what
    happens does not depend on chance."""
    base = FOLDER / "stacks" / "tiny"
    if not (base / "config.json").is_file():
        make_tiny_model(base, heads=2)
    configs = configure(FOLDER / "stacks" / "mechanics", lambda folder: _make_small(folder, base))
    with running(configs, tell) as (demo, services):
        demo.folder.mkdir(parents=True, exist_ok=True)
        tallies = {key: asyncio.run(talk(demo, load_content(key), lambda *_: None)) for key in (BUSINESS, OTHER)}
        yield once(demo.folder, "steered", lambda: steer(demo, OTHER))
        tell("users have talked")
        yield once(demo.folder, "killed", lambda: _killed(demo, services, tell))
        first = run_night(demo, BUSINESS, tell)  # it has ended: this reads how
        yield once(demo.folder, "data", lambda: _data(demo, tallies[BUSINESS], first))
        yield once(demo.folder, "refused", lambda: [_refused(demo, services, first, tell)])
        yield once(demo.folder, "erased", lambda: _erased(demo, services, first, tell))
        yield once(demo.folder, "canary", lambda: [taken_back(demo, services, BUSINESS, tell)])
        other = run_night(demo, OTHER, tell)
        yield once(demo.folder, "held", lambda: held_rows(demo, OTHER))
        yield once(demo.folder, "other", lambda: _data(demo, tallies[OTHER], other))
        yield once(demo.folder, "apart", lambda: [_apart(demo, services.registry, first, other)])


def _killed(demo: Demo, services: Services, tell: Tell) -> list[Row]:
    killed, steps = killed_night(demo, BUSINESS, tell)
    engine = next(services.servers[each.name] for each in demo.config.system.engines if each.serves == "adapters")
    with (
        at_gate(demo.config.state_dir, BUSINESS),  # the controller knows nothing of the other night's registry
        running_server("mlflow.sh", "/health", _fresh(demo.config.state_dir.with_name("whole-mlflow"))) as mlflow,
    ):
        for name in engine.list():
            engine.unload(name)  # the other night has the same adapter under the same name, in a folder of its own
        return [_killed_row(killed, whole_night(demo, mlflow.url, BUSINESS, tell), steps)]


def _killed_row(killed: End, whole: End, steps: list[str]) -> Row:
    ends = [(e.night.snapshot_id, e.adapter, e.night.verdict, e.night.train_rows) for e in (killed, whole)]
    same = ends[0] == ends[1] and killed.versions == 1
    found = "the same snapshot, adapter (to the byte) and verdict" if same else f"{ends[0]} but {ends[1]}"
    return Row(
        f"a night killed {len(steps)} times, once in each step",
        f"夜间流程在每一步各被杀一次（共 {len(steps)} 次）",
        "ends like the night that nobody killed, with one version",
        "结果与没有被杀的那一夜相同，只有一个版本",
        f"{found}; {killed.versions} version",
        same,
    )


def _data(demo: Demo, tally: Tally, night: Night) -> list[Row]:
    facts = checks.data_facts(demo, tally, night)
    return [
        Row(
            f"{night.business}: {fact.what}",
            f"{night.business}：{_ZH[fact.what]}",
            fact.planted,
            fact.planted,
            fact.found,
            fact.right,
        )
        for fact in facts
        if fact.what in _ZH
    ]


def _apart(demo: Demo, registry: ModelRegistry, *nights: Night) -> Row:
    """What one business's users wrote is in nothing that was made for the other."""
    state, wrong = demo.config.state_dir, []
    for night, foreign in zip(nights, (_SECRET[OTHER], _SECRET[BUSINESS]), strict=True):
        needle = (foreign.encode(),)
        places = [state / "snapshots" / night.business, state / "reports" / night.business]
        if night.version is not None:
            places.append(state / "adapters" / registry.get(night.business, night.version).adapter.sha256)
        wrong += [f"{night.business}: {path}" for place in places for path in found_in(place, needle)]
    return Row(
        "a phrase that only the other business's users write",
        "只有另一业务的用户会写的短语",
        "in no snapshot, adapter or report of the business",
        "不在该业务的任何快照、适配器和报告里",
        f"{len(wrong)} files" if not wrong else "; ".join(wrong[:3]),
        not wrong,
    )


def _refused(demo: Demo, services: Services, night: Night, tell: Tell) -> Row:
    """Somebody asks in MLflow for a version that the gate did not pass."""
    assert night.version is not None
    tell("somebody asks for a version that did not pass")
    client = MlflowClient(demo.config.system.mlflow.url, demo.config.system.mlflow.url)
    version = str(night.version)
    if "rollout_refused" not in client.get_model_version(BUSINESS, version).tags:
        client.set_registered_model_alias(BUSINESS, "promote", version)
    deadline = time.monotonic() + _REFUSED_WITHIN_S
    why, aliases = "", {"promote": night.version}
    while (not why or aliases) and time.monotonic() < deadline:
        time.sleep(0.5)
        why = client.get_model_version(BUSINESS, version).tags.get("rollout_refused", "")
        aliases = services.registry.aliases(BUSINESS)
    right = bool(why) and not aliases and night.verdict is not Verdict.PROMOTE
    return Row(
        f"alias `promote` on a version whose verdict is {night.verdict}",
        f"给结论为 {night.verdict} 的版本设 `promote` 别名",
        "refused, with the reason on the version; the base model goes on serving",
        "被拒绝，原因写在版本上；基座模型继续服务",
        why or "not refused",
        right,
    )


def _erased(demo: Demo, services: Services, night: Night, tell: Tell) -> list[Row]:
    """One user is erased; another night is trained without them."""
    user = f"{BUSINESS}-user-000"
    key = Ids(demo.settings.user_salt.get_secret_value()).user_key(BUSINESS, user)
    needles = (key.encode(), user.encode())
    kept = load(demo, "erased")
    if not isinstance(kept, dict):
        stores = ("events", "snapshots", "reports", "work", "nights", "mlflow", "duplicates", "control.db")
        before = [store for store in stores if _holds(demo.config.state_dir / store, needles)]
        said = tuneloop(demo, "erase", "--business", BUSINESS, "--user", "-", "--yes", given=f"{user}\n")
        kept = {"before": before, "said": said}
        save(demo, "erased", kept)
    tell("a user is erased")
    after = Demo(demo.config, demo.settings, demo.api_key, 2)
    after.folder.mkdir(parents=True, exist_ok=True)
    second = run_night(after, BUSINESS, tell)
    # What `tuneloop` was told stands nowhere but in this proof's own notes.
    left = {path for path in found_in(demo.config.state_dir, needles) if not path.startswith("demo/")}
    named = f"version {night.version} trained on" in kept["said"]
    learned = [v.version for v in services.registry.versions(BUSINESS) if v.learned_erased]
    return [
        Row(
            "an erased user, who was in " + ", ".join(kept["before"]),
            "被删除的用户，此前出现在 " + "、".join(kept["before"]),
            "in no file of the state folder, MLflow's among them, also after another night",
            "状态目录（含 MLflow）里没有任何文件再提到，再过一夜也没有",
            f"{len(left)} files" if not left else ", ".join(sorted(left)[:4]),
            bool(kept["before"]) and not left,
        ),
        Row(
            "versions that learned from the erased user",
            "学过该用户的版本",
            f"version {night.version} named and marked; the next one trained without",
            f"版本 {night.version} 被点名并标记；下一个版本不含该用户",
            f"{'named' if named else 'not named'}; marked: {learned}; then version {second.version}, "
            f"{second.train_rows} rows",
            named and learned == [night.version] and second.version not in (None, night.version),
        ),
    ]


def _holds(place: Path, needles: tuple[bytes, ...]) -> bool:
    if place.is_file():
        return any(needle in place.read_bytes() for needle in needles)
    return bool(found_in(place, needles))


def _fresh(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _make_small(folder: Path, base: Path) -> None:
    """The tiny base model, and businesses with little to train and to ask."""

    def tiny(system: dict[str, Any]) -> None:
        system["base_model"] = {"id": "tiny", "revision": "r1", "path": str(base)}

    edit(folder / "tuneloop.yaml", tiny)
    for key in (BUSINESS, OTHER):
        edit(folder / "businesses" / f"{key}.yaml", partial(_small, content=load_content(key)))


def _small(values: dict[str, Any], content: Content) -> None:
    """Little to train and to ask, and nobody is promoted without being asked for."""
    values["dataset"]["min_rows"] = 20
    values["training"] |= {"method": "sft", "learning_rate": 1.0e-2, "max_steps": 100, "max_length": 256}
    values["gate"] |= {"max_items": 16, "max_pairs": 0, "min_users": 200, "max_tokens": content.max_tokens}
    values["gate"]["probes"] = {"sycophancy": 4, "general": 4}
    # One long step, which only harm can end: the canary of this proof must be taken back.
    step = {"share": 0.3, "min_minutes": 20, "min_users": 100, "timeout_minutes": 60}
    values["rollout"] |= {"auto_canary": False, "steps": [step, {**step, "share": 1.0}]}


_ZH = {
    "interactions = sources + dropped": "互动 = 来源 + 舍弃",
    "question, answer and judgement repeated": "问题、回答、评价都重复",
    _PERSONAL: "快照、适配器、报告、日志里的证件号、电话、卡号、邮箱",
}
