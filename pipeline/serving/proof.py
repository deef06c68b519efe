"""Whether an engine really serves an adapter: a load answered with `200` proves nothing.

What is compared are log-probability *deltas*, adapter minus base, over a few texts; they were recorded at registration
by an engine of the same kind and number format. Measured on the CPU build of vLLM (bf16, SmolLM2-135M, adapters of
rank 8, texts of 25 tokens): repeated, and after a restart of the engine, the deltas are the same to the last digit;
in a batch with other requests a text moves by up to 0.24 nats; two engines differ by up to 0.43 on the base model.
A trained adapter moves a text it was trained on by 60 to 70 nats, after four steps already by 11 to 17; two adapters
that differ only in the seed of their training lie 1.1 nats apart (root mean square).
"""

import math
from collections.abc import Iterable, Sequence

from pipeline.dataset.snapshot import Rows
from pipeline.errors import ServingError
from pipeline.records import Fingerprint
from pipeline.serving.base import AdapterServer

TOLERANCE_NATS = 0.5
TOLERANCE_SHARE = 0.005
"""Root mean square over the texts of measured minus recorded: at most `TOLERANCE_NATS` and this share of the deltas."""
FAR_NATS = 2.0
"""An adapter that moves the texts by less (root mean square) cannot be told from the base model."""
_MAX_BYTES = 512
"""No tokenizer makes more tokens of a text than it has bytes: so it fits every engine, and is quick to score."""


def choose_probe_texts(
    candidates: Sequence[str],
    base_server: AdapterServer,
    adapter_server: AdapterServer,
    name: str,
    base_id: str,
    count: int,
) -> tuple[str, ...]:
    """The texts that the adapter moves most, at most `count`, the most moved first.

    Args:
        candidates: texts of the training rows; of a long one the end is taken, where the answer is.
        base_server: an engine that serves the base model.
        adapter_server: the engine that serves the adapter.
        name: the adapter's name there.
        base_id: the base model's name.
        count: how many to choose.

    Raises:
        ServingError: no candidate has any text, or an engine refuses to score.
    """
    texts = tuple(dict.fromkeys(text for candidate in candidates if (text := _end(candidate))))
    if not texts:
        raise ServingError(f"no text to prove '{name}' with: all {len(candidates)} candidates are empty")
    measured = fingerprint(base_server, adapter_server, base_id, name, texts)
    moved = zip(_deltas(measured, measured.adapter_logprobs), texts, strict=True)
    return tuple(text for _, text in sorted(moved, key=lambda pair: -abs(pair[0]))[:count])


def training_texts(rows: Rows) -> tuple[str, ...]:
    """Question and wanted answer of training rows, as plain text: candidates to prove an adapter with."""
    pairs = [(row.prompt, row.completion) for row in rows.sft] + [(row.prompt, row.chosen) for row in rows.preference]
    return tuple(f"{prompt[-1].get('content')}\n{answer[-1].get('content')}" for prompt, answer in pairs)


def keep_texts(fingerprint: Fingerprint, candidates: Iterable[str]) -> Fingerprint:
    """The part of a fingerprint whose texts are among the candidates: the others' rows are erased."""
    allowed = {_end(text) for text in candidates}
    kept = [place for place, text in enumerate(fingerprint.texts) if text in allowed]
    return Fingerprint(
        texts=tuple(fingerprint.texts[place] for place in kept),
        base_logprobs=tuple(fingerprint.base_logprobs[place] for place in kept),
        adapter_logprobs=tuple(fingerprint.adapter_logprobs[place] for place in kept),
    )


def fingerprint(
    base_server: AdapterServer, adapter_server: AdapterServer, base_id: str, name: str, texts: Sequence[str]
) -> Fingerprint:
    """Measure what every engine that serves the adapter must show.

    Raises:
        ServingError: an engine refuses to score.
    """
    return Fingerprint(
        texts=tuple(texts),
        base_logprobs=base_server.probe(base_id, tuple(texts)),
        adapter_logprobs=adapter_server.probe(name, tuple(texts)),
    )


def prove(server: AdapterServer, name: str, fingerprint: Fingerprint) -> None:
    """Let pass an engine that serves under `name` the adapter of the fingerprint, and refuse any other.

    Being this near to deltas this far from zero implies that they correlate: above 0.96 about zero.

    Raises:
        ServingError: it serves the base model or something else, or the adapter can be told from neither.
        EngineUnavailable: it does not answer.
    """
    recorded = _deltas(fingerprint, fingerprint.adapter_logprobs)
    moved = _root_mean_square(recorded)
    if not moved >= FAR_NATS:
        raise ServingError(
            f"'{name}' cannot be proven: it moves its {len(recorded)} probe texts by {moved:.2f} nats, at least "
            f"{FAR_NATS} are needed to tell it from the base model; train it longer"
        )
    measured = _deltas(fingerprint, server.probe(name, fingerprint.texts))
    apart = _root_mean_square([a - b for a, b in zip(measured, recorded, strict=True)])
    limit = TOLERANCE_NATS + TOLERANCE_SHARE * moved
    if not apart <= limit:  # NaN is not below anything
        shown = _root_mean_square(measured)
        what = "the base model" if shown < FAR_NATS else "another adapter"
        raise ServingError(
            f"engine {server.url} does not serve '{name}' under that name but {what}: its probe is {apart:.2f} nats "
            f"from the recorded one (limit {limit:.2f}) and {shown:.2f} from the base model; unload and load it again"
        )


def _deltas(fingerprint: Fingerprint, logprobs: Sequence[float]) -> list[float]:
    return [adapter - base for adapter, base in zip(logprobs, fingerprint.base_logprobs, strict=True)]


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(math.fsum(value * value for value in values) / len(values)) if values else 0.0


def _end(text: str) -> str:
    return text.rstrip().encode("utf-8", "ignore")[-_MAX_BYTES:].decode("utf-8", "ignore").strip()
