"""`tuneloop snapshot inspect`: rows as the trainer gets them, with the tokens that are learned marked."""

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from flows.terminal import plain
from pipeline.config import Config
from pipeline.dataset.catalogue import find_snapshot
from pipeline.dataset.snapshot import read_snapshot
from pipeline.records import Example, PreferenceExample, Split, UnpairedExample
from pipeline.train.rows import Rendering, Tokens, answers_of

_LONGEST = 2000
"""Characters of a part; the rest is counted."""
_PROMPT, _LEARNED, _UNLEARNED = "dim", "bold green", "red"


def inspect(config: Config, business: str, name: str, examples: int) -> None:
    """Print the first rows of each kind: prompt, learned tokens, and what a pair is taught away from."""
    about = config.business(business)
    console = Console(highlight=False, markup=False)
    with console.status("loading the tokenizer"):
        from pipeline.train.tokenizer import load_rendering  # late: transformers takes seconds

        rendering = load_rendering(config.system.base_model.path, about.training.max_length)
    folder = find_snapshot(config.state_dir / "snapshots", about.business, name)
    legend = Text.assemble(("read", _PROMPT), "  ", ("learned", _LEARNED), "  ", ("taught away from", _UNLEARNED))
    console.print(legend)
    for kind, rows in read_snapshot(folder).rows[Split.TRAIN].by_kind().items():
        for number, example in enumerate(rows[:examples]):
            console.print(_row(f"\n{kind} {number}", example, rendering), soft_wrap=True)


def _row(title: str, example: Example, rendering: Rendering) -> Text:
    tokens = rendering.tokens(example, answers_of(example))
    if not isinstance(tokens, Tokens):
        return Text(f"{title}: not trained on: {tokens}")
    counts = " + ".join(str(len(answer)) for answer in tokens.answers)
    cut = ", oldest turns left out" if tokens.shortened else ""
    weight = f"weight {example.source.weight:g}{cut}"
    shown = Text(f"{title}: {len(tokens.prompt)} tokens read, {counts} of answers, {weight}\n")
    shown.append(_text(rendering, tokens.prompt), _PROMPT)
    for style, answer in zip(_styles(example), tokens.answers, strict=True):
        shown.append(f"\n{_text(rendering, answer)}", style)
    return shown


def _styles(example: Example) -> Iterable[str]:
    if isinstance(example, PreferenceExample):
        return _LEARNED, _UNLEARNED
    return (_UNLEARNED if isinstance(example, UnpairedExample) and not example.label else _LEARNED,)


def _text(rendering: Rendering, ids: list[int]) -> str:
    return plain(str(rendering.tokenizer.decode(ids)), _LONGEST)
