"""Personal data that is planted: invented, valid by its own rules, and different for each seed.

Mail stands on the domains that are reserved for documentation (RFC 2606), North American telephones in the range kept
for fiction (555-01xx), cards begin with a network's digits and keep Luhn's check (ISO/IEC 7812-1), IBANs keep mod 97
(ISO 13616) and Chinese resident ids mod 11-2 (GB 11643).
"""

import random
import string
from typing import Literal

from pipeline.records import Record

_FIRST = "dana oliver sofia marek ingrid paulo hanna tomas greta luis nadia felix iris jonas clara viktor".split()  # noqa: SIM905
_LAST = "keller brandt sorensen okafor lindqvist whitfield moreau tanaka novak ferrari petrov schulte dubois".split()  # noqa: SIM905
_FAMILY = "欧阳 司马 陈 李 王 赵 周 吴 郑 孙 钱 冯 沈 韩 杨 许"
_GIVEN = "明月 建国 秀兰 伟强 子涵 雨桐 晓东 海燕 志远 佳怡 文博 思琪 立新 春梅"
_DOMAINS = ("example.com", "example.org", "example.net")
_AREAS = ("212", "312", "415", "503", "617", "646", "713", "805")
_CITIES = ("110105", "310104", "440308", "330106", "510104", "420106")
_MOBILE = ("130", "135", "137", "138", "139", "150", "158", "177", "186", "189")


class Planted(Record):
    """One value that must be in no snapshot, adapter, report or log of the training side."""

    kind: str
    value: str

    @property
    def structured(self) -> bool:
        """Names are found at a measured rate; everything else must be found always."""
        return self.kind != "name"


class Place(Record):
    """Where a planted value stands: characters `start` to `end` (exclusive) of one text of an interaction."""

    interaction_id: str
    text: Literal["prompt", "answer", "edit", "comment", "tool"]
    start: int
    end: int
    planted: Planted


def new_value(kind: str, language: str, rng: random.Random) -> str:
    """A value of one kind: `email`, `phone`, `card`, `iban`, `id` or `name`.

    Raises:
        ValueError: there is no such kind.
    """
    match kind:
        case "email":
            number = rng.randrange(1000, 10000)
            return f"{rng.choice(_FIRST)}.{rng.choice(_LAST)}{number}@{rng.choice(_DOMAINS)}"
        case "phone" if language == "zh":
            return rng.choice(_MOBILE) + _digits(rng, 8)
        case "phone":
            return f"{rng.choice(_AREAS)}-555-01{_digits(rng, 2)}"
        case "card":
            return _with_luhn(("622202" if language == "zh" else "411111") + _digits(rng, 9))
        case "iban":
            return _iban(rng)
        case "id":
            return _resident_id(rng)
        case "name":
            english = f"{rng.choice(_FIRST).title()} {rng.choice(_LAST).title()}"
            return english if language == "en" else rng.choice(_FAMILY.split()) + rng.choice(_GIVEN.split())
        case _:
            raise ValueError(f"no personal data of kind '{kind}'; known: email, phone, card, iban, id, name")


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(string.digits, k=count))


def _with_luhn(body: str) -> str:
    total = 0
    for place, digit in enumerate(reversed(body)):
        doubled = int(digit) * (2 if place % 2 == 0 else 1)
        total += doubled - 9 if doubled > 9 else doubled
    return body + str(-total % 10)


def _iban(rng: random.Random) -> str:
    """Of a German form: two check digits, then eighteen digits."""
    account = _digits(rng, 18)
    check = 98 - int(f"{account}131400") % 97
    return f"DE{check:02d}{account}"


def _resident_id(rng: random.Random) -> str:
    day = f"{rng.randrange(1950, 2005)}{rng.randrange(1, 13):02d}{rng.randrange(1, 29):02d}"
    body = rng.choice(_CITIES) + day + _digits(rng, 3)
    weight = sum(int(digit) * (1 << (17 - place)) for place, digit in enumerate(body))
    return body + "10X98765432"[weight % 11]
