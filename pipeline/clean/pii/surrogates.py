"""Surrogates: values of the same form that nobody has, to train on where `<PHONE_1>` would teach a wrong form.

Each comes from a range that is allotted to no one, so that none can be a real person's and each is known again: the
gate's search for leaks and a second scrub leave it alone. Check digits are right. All other kinds and forms (names,
addresses, other telephones, plates, passports, companies, accounts of chat services, secrets) keep their labels.

- PHONE: Chinese mobile numbers begin with 154, which no carrier has; North American ones have the area code 29x, which
  is kept for the plan's expansion.
- ID_CARD: regions 99xxxx, which do not exist. CARD: issuers 9999xx, of a country that does not exist (ISO/IEC 7812).
  SSN: areas 9xx with a group 1x, given neither as SSN nor as ITIN.
- EMAIL: at example.com (RFC 2606). IP: 203.0.113.0/24 (RFC 5737) and 2001:db8::/32. MAC: 00:00:5e:00:53:xx (RFC 7042).
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta

import regex

from pipeline.clean.pii.checks import SPOKEN_DIGITS, chinese_id_digit, compact, luhn

_SPREAD, _SHIFT = 7_919, 4_241
"""A prime and an offset: numbers of one conversation do not look counted, and none comes twice."""
_LAST = 99
"""More values of one kind in one conversation keep their labels."""
_BORN = date(1970, 1, 1)
_EXTENSION = r"[ ]?(?:转|ext\.?|x)[ ]?\d{1,6}(?!\d)"


def _spaced(start: str, more: str = "") -> str:
    """A pattern of digits with the separators that may stand between them."""
    between = r"[ ().\-]{0,2}"
    return between.join(start) + (rf"(?:{between}\d){{{more}}}" if more else "")


_CHECKED = rf"(?P<checked>{_spaced('9999', '8,15')})"
_KNOWN = regex.compile(
    rf"(?<!\d)(?:(?:(?:\+|00)?86[ -]?)?{_spaced('154', '8')}|(?:\+?1[ .-])?\(?{_spaced('29', '8')})(?!\d)"
    rf"(?:{_EXTENSION})?"
    rf"|(?<!\d)(?:{_spaced('99', '15')}[ \-]?[\dX]|{_spaced('99', '13')}|{_CHECKED}|9\d\d[ -]?1\d[ -]?\d{{4}})(?!\d)"
    r"|user\d{6}(?:@|%40)example\.com|(?<![\d.])203\.0\.113\.\d{1,3}(?![\d.])|2001:db8::[0-9a-f]{1,4}(?![0-9a-f:])"
    r"|00(?P<between>[:-])00(?P=between)5e(?P=between)00(?P=between)53(?P=between)[0-9a-f]{2}"
)


def surrogate(entity: str, value: str, number: int) -> str | None:
    """What stands for the `number`th value of its kind in a conversation, written as `value` is.

    Args:
        entity: its kind.
        value: in half width; its separators and its length are kept.
        number: from 1; each gives another surrogate.

    Returns:
        None for a kind or a form that has no range of its own, and beyond `number` 99.
    """
    make = _MAKERS.get(entity)
    made = make(value, number) if make and number <= _LAST else None
    return made if made and list(surrogates_in(made)) == [(0, len(made))] else None


def surrogates_in(folded: str) -> Iterator[tuple[int, int]]:
    """Where a text in half width holds values from these ranges."""
    for match in _KNOWN.finditer(folded):
        if not match["checked"] or luhn(match["checked"]):
            yield match.span()


def _digits(number: int, length: int) -> str:
    """Digits that no other number below 100 has."""
    return (f"{(number * _SPREAD + _SHIFT) % 1_000_000:06d}" * 3)[-length:]


def _written(value: str, signs: str) -> str:
    """The signs with the separators of the value, which has as many."""
    rest = iter(signs)
    return "".join(next(rest) if char.isalnum() else char for char in value)


def _phone(value: str, number: int) -> str | None:
    value = value.translate(SPOKEN_DIGITS)
    extension = regex.search(_EXTENSION, value, regex.IGNORECASE)
    head, tail = (value[: extension.start()], extension.group()) if extension else (value, "")
    signs = compact(head)
    if regex.fullmatch(r"(?:(?:00)?86)?1[3-9]\d{9}", signs) and not head.startswith("+1"):
        made = f"{signs[:-11]}154{_digits(number, 8)}"
    elif regex.fullmatch(r"1?[2-9]\d\d[2-9]\d{6}", signs):
        made = f"{signs[:-10]}29{_digits(number, 8)}"
    else:
        return None
    return _written(head, made) + str(regex.sub(r"\d", "1", tail))


def _resident_id(value: str, number: int) -> str | None:
    born = _BORN + timedelta(days=number)
    region, order = "99" + _digits(number, 4), _digits(number, 3)
    if len(compact(value)) == 15:
        return _written(value, f"{region}{born:%y%m%d}{order}")
    first = f"{region}{born:%Y%m%d}{order}"
    return _written(value, first + chinese_id_digit(first)) if len(compact(value)) == 18 else None


def _card(value: str, number: int) -> str | None:
    first = "9999" + _digits(number, len(compact(value)) - 5)
    return next((_written(value, f"{first}{last}") for last in range(10) if luhn(f"{first}{last}")), None)


_MAKERS: Mapping[str, Callable[[str, int], str | None]] = {
    "PHONE": _phone,
    "ID_CARD": _resident_id,
    "CARD": _card,
    "SSN": lambda value, number: _written(value, f"9{_digits(number, 2)}1{_digits(number, 5)}"),
    "EMAIL": lambda value, number: f"user{_digits(number, 6)}{'@' if '@' in value else '%40'}example.com",
    "IP": lambda value, number: f"2001:db8::{number:x}" if ":" in value else f"203.0.113.{number}",
    "MAC": lambda value, number: value[2].join(("00", "00", "5e", "00", "53", f"{number:02x}")),
}
