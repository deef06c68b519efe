"""How a version in shadow answered, beside what users got, on a terminal."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from statistics import mean, median

import httpx
from rich.console import Console
from rich.progress import Progress

from evals.answers import Answers
from evals.endpoint import Endpoint
from evals.judge import EndpointJudge
from evals.judge.shadow import judge_pairs
from evals.shadow import agreement, is_failure, text_of
from pipeline.clean.pii.on_demand import OnDemandDetector
from pipeline.clean.pii.rules import Rules
from pipeline.clean.quality import is_refusal
from pipeline.config import BusinessConfig, Config, JudgeConfig, JudgeSettings
from pipeline.errors import ConfigError, DataError
from pipeline.events.shadows import ShadowPair, read_shadow_pairs
from pipeline.records import Choice, Judging, Usage, content_id

_JUDGE_TIMEOUT_S = httpx.Timeout(120.0, connect=10.0)


def show_shadow(config: Config, about: BusinessConfig, version: int, *, ask_judge: bool, now: datetime) -> None:
    """Print counts and likeness, and what the judge says if it is asked. No text of a user is printed.

    Raises:
        ConfigError: the business has no judge.
        DataError: the version answered no copy, or the event log cannot be read.
    """
    if ask_judge and about.gate.judge is None:
        raise ConfigError(f"business '{about.business}' has no judge; add `gate.judge` to its file")
    start = now - timedelta(days=about.retention_days)
    name = f"{about.business}-v{version}-"
    every = read_shadow_pairs(config.state_dir / "events", about.business, start, now)
    pairs = [pair for pair in every if pair.shadow.model_version.startswith(name)]
    if not pairs:
        raise DataError(
            f"version {version} of '{about.business}' answered no copy in the last {about.retention_days} days; was it "
            "in shadow (`rollout.shadow` of the business's file)?"
        )
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for line in summary(pairs):
        console.print(line)
    if ask_judge and about.gate.judge:
        console.print(_told(_judge(config, about, about.gate.judge, pairs)))


def summary(pairs: Sequence[ShadowPair]) -> list[str]:
    """Lines about some pairs of one version."""
    users = {pair.served.user_key or pair.served.session for pair in pairs}
    alike = [
        found
        for pair in pairs
        if (found := agreement(text_of(pair.served.choices), text_of(pair.shadow.choices))) is not None
    ]
    served, shadow = [pair.served for pair in pairs], [pair.shadow for pair in pairs]
    first, last = (f"{pairs[at].shadow.started_at.astimezone(UTC):%Y-%m-%d %H:%M}" for at in (0, -1))
    tokens = _tokens(one.usage for one in shadow), _tokens(one.usage for one in served)
    return [
        f"copies:   {len(pairs)} of requests of {len(users)} users, {first} to {last} UTC",
        f"failed:   {sum(map(is_failure, pairs))}",
        f"refused:  {_refused(one.choices for one in shadow)}, to the users {_refused(one.choices for one in served)}",
        f"tokens:   {tokens[0]} an answer, to the users {tokens[1]}",
        f"likeness: {mean(alike):.2f} (1: word for word what users got)" if alike else "likeness: no texts to compare",
    ]


def _judge(config: Config, about: BusinessConfig, judge: JudgeConfig, pairs: Sequence[ShadowPair]) -> Judging | None:
    place = Endpoint(
        url=judge.url.rstrip("/").removesuffix("/v1"),
        model=judge.model,
        api_key=JudgeSettings().judge_key.get_secret_value(),
    )
    rules = Rules(about.pii, about.language)
    name = content_id(["judge", about.business, place.url, place.model])[:16]  # where a night's rulings are kept, too
    kept = Answers(config.state_dir / "work" / "gate" / f"{about.business}-{name}.jsonl")
    with closing(kept), httpx.Client(timeout=_JUDGE_TIMEOUT_S) as client, Progress(transient=True) as progress:
        bar = progress.add_task("judge", total=None)
        return judge_pairs(
            pairs,
            EndpointJudge(place, client, about.gate.seed),
            judge,
            detector=OnDemandDetector(about.language, rules),
            rules=rules,
            kept=kept,
            confidence=about.gate.confidence,
            on_progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )


def _told(judging: Judging | None) -> str:
    if judging is None:
        return "judge:    no pair of texts without personal data"
    found = judging.answers
    ties = found.ties + found.order_disagreements + found.spoke_to_judge
    told = (
        f"judge:    {found.wins} better, {found.losses} worse, {ties} neither; {found.total - found.judged} not judged"
    )
    return f"{told} ({judging.problem})" if judging.problem else told


def _refused(answers: Iterable[tuple[Choice, ...]]) -> int:
    return sum(is_refusal(text_of(choices)) for choices in answers)


def _tokens(usages: Iterable[Usage | None]) -> str:
    """In the middle of all."""
    counts = [usage.completion_tokens for usage in usages if usage is not None]
    return f"{median(counts):.0f}" if counts else "–"
