"""What a text claims that the likeness of words hardly sees: its numbers, its negations and its names.

Two answers that differ in one digit or one "not" are nearly the same text and say different things. Facts are taken
from texts as they were written, since placeholders would make different values equal, and only a keyed hash of them is
kept.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator

from pipeline.clean.text import fold_script, repair_text
from pipeline.records import canonical_json

_NUMBER = re.compile(r"[+-]?\d+(?:[.,:/-]\d+)*")
_CHINESE_NUMBER = re.compile(
    r"[〇零一二两三四五六七八九十百千万亿半]+"
    r"(?=[个天日号月年周岁点分秒元块角毛次遍位名件份台张只条套本页项款种倍成折米克斤吨升层楼期]|小时|公里|星期)"
    r"|(?:(?<=[第周])|(?<=百分之)|(?<=星期))[〇零一二三四五六七八九十百千万日]+"
)
# The words that are left out hold the character and deny nothing.
_CHINESE_NOT = re.compile(
    r"(?<!差(?=不多))(?<![对了](?=不起))不(?!好意思|过|但|仅|管|论|断|客气)|没(?!关系|问题)|未|无(?!论)|(?<![除莫])非(?!常)"
    r"|勿|莫(?!非)|(?<![是能可])否(?!则)|(?<![特分区级性个类])别(?![的人])"
)
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_COUNTS_OR_DENIES = frozenset(
    "zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "  # noqa: SIM905
    "seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion half "
    "twice first third not no never none nothing nobody nowhere neither nor without cannot unable unless except dont "
    "doesnt didnt isnt arent wasnt werent cant wont wouldnt shouldnt couldnt havent hasnt hadnt unavailable unpaid "
    "unused unopened unsafe unlikely unknown invalid incorrect inactive incomplete impossible".split()
)
_CAPITAL = re.compile(r"[A-Z\u00c0-\u00de\u0391-\u03a9\u0410-\u042f][\w'&-]*")
_LATIN_AFTER_CHINESE = re.compile(r"(?:(?<=[\u3400-\u9fff])|(?<=[\u3400-\u9fff] ))[A-Za-z][A-Za-z\d]*")


def facts(text: str) -> list[list[str]]:
    """Numbers, negations and names of a text, each kind in its order there; width, script and the separators of
    thousands don't count."""
    plain = " ".join(unicodedata.normalize("NFKC", repair_text(text)).replace("’", "'").split())
    numbers = [number.replace(",", "") for number in _NUMBER.findall(plain)]
    words = [word for word in _WORD.findall(plain.lower()) if word in _COUNTS_OR_DENIES or word.endswith("n't")]
    names = [name.casefold() for name in _names(plain)]
    if plain.isascii():
        return [numbers, words, names]
    plain = fold_script(plain)
    names += [name.casefold() for name in _LATIN_AFTER_CHINESE.findall(plain)]
    return [numbers + _CHINESE_NUMBER.findall(plain), words + list(_denials(plain)), names]


def facts_hash(texts: Iterable[str], values: Iterable[tuple[str, str]], key: bytes) -> str:
    """Equal for records whose texts claim the same; says nothing to whoever lacks the key.

    Args:
        texts: as they were written; which one says what counts.
        values: personal data found in them, as (entity, value): names above all, which no pattern knows.
        key: any secret; only hashes of one key compare.
    """
    named = sorted({(entity, unicodedata.normalize("NFKC", repair_text(value)).casefold()) for entity, value in values})
    claims = canonical_json([[facts(text) for text in texts], named])
    return hashlib.blake2b(claims.encode(), key=key[:64], digest_size=16).hexdigest()


def _denials(plain: str) -> Iterator[str]:
    """Not those of a question such as 是不是 or 有没有."""
    for match in _CHINESE_NOT.finditer(plain):
        before, after = plain[max(0, match.start() - 1) : match.start()], plain[match.end() : match.end() + 1]
        if not before or before != after:
            yield match[0]


def _names(plain: str) -> Iterator[str]:
    """Words with a capital letter inside a sentence."""
    for match in _CAPITAL.finditer(plain):
        before = plain[max(0, match.start() - 2) : match.start()]
        if len(before) == 2 and before[1] == " " and (before[0].isalnum() or before[0] in ",;)") and match[0] != "I":
            yield match[0]
