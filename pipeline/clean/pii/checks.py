"""Check digits and other proofs that a run of characters is what its shape says."""

import ipaddress
from datetime import date

_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_PROVINCE_RANGES = ((11, 15), (21, 23), (31, 37), (41, 46), (50, 54), (61, 65), (71, 71), (81, 83), (91, 91))
_PROVINCES = frozenset(f"{code}" for first, last in _PROVINCE_RANGES for code in range(first, last + 1))
SPOKEN_DIGITS = str.maketrans("〇零洞一幺么壹二两贰三叁四肆五伍六陆七柒拐八捌九玖勾", "00011112223344556677788999")
"""Digits as they are said and written in Chinese; 幺, 两, 拐, 勾 and 洞 are those of the telephone."""
_USCC_ALPHABET = "0123456789ABCDEFGHJKLMNPQRTUWXY"


def compact(value: str) -> str:
    """Letters and digits only, in capitals."""
    return "".join(char for char in value if char.isalnum()).upper()


def luhn(value: str) -> bool:
    """Whether a card number (13 to 19 digits, separators allowed) has the right check digit (ISO/IEC 7812-1)."""
    digits = [int(char) for char in value if char.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def chinese_id(value: str) -> bool:
    """Whether it has the shape of a resident id: 18 characters, a province, a day that exists.

    The check digit (`chinese_id_digit`) isn't asked for: a mistyped id still leads to its owner.
    """
    code = compact(value)
    return len(code) == 18 and code[:2] in _PROVINCES and _is_day(code[6:14])


def chinese_id_digit(first_17: str) -> str:
    """The check digit of a resident id (ISO 7064 MOD 11-2)."""
    return "10X98765432"[sum(int(char) * weight for char, weight in zip(first_17, _ID_WEIGHTS, strict=True)) % 11]


def chinese_company(value: str) -> bool:
    """Whether a unified social credit code has the right check character (GB 32100, MOD 31)."""
    code = value.upper()
    try:
        total = sum(_USCC_ALPHABET.index(char) * pow(3, at, 31) for at, char in enumerate(code[:17]))
    except ValueError:
        return False
    return code[17] == _USCC_ALPHABET[-total % 31]


def iban(value: str) -> bool:
    """Whether an IBAN's check digits are right (ISO 13616, MOD 97)."""
    code = compact(value)
    return 15 <= len(code) <= 34 and int("".join(str(int(char, 36)) for char in code[4:] + code[:4])) % 97 == 1


def public_address(value: str) -> bool:
    """Whether it is an IP address that may lead to a person: not loopback, unspecified or a mask."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or value.startswith("255."))


def _is_day(yyyymmdd: str) -> bool:
    try:
        return 1900 <= date.fromisoformat(yyyymmdd).year <= 2100
    except ValueError:
        return False
