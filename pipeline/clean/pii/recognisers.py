"""What each kind of structured personal data looks like, in texts of any mix of languages.

`\\b` fails beside Chinese, whose characters are word characters, so borders are look-arounds over ASCII letters or
digits, and often over digits only: people glue numbers to words. To add a kind: a recogniser here, an example in
`tests/unit/test_clean_patterns.py`. Every repetition is bounded, because a message may be a megabyte long.
"""

from collections.abc import Callable
from dataclasses import dataclass

import regex

from pipeline.clean.pii import checks

_FLAGS = regex.IGNORECASE | regex.MULTILINE


@dataclass(frozen=True)
class Recogniser:
    """What an entity looks like: the whole pattern, or its group `value`.

    A match counts when `check` holds for it, or `context` stands shortly before it, or it has neither.
    """

    entity: str
    pattern: regex.Pattern[str]
    trigger: regex.Pattern[str]
    """Matches in every text that the pattern matches in."""
    check: Callable[[str], bool] | None = None
    context: regex.Pattern[str] | None = None


def _look(
    entity: str, pattern: str, trigger: str, check: Callable[[str], bool] | None = None, context: str | None = None
) -> Recogniser:
    near = regex.compile(context, _FLAGS) if context else None
    return Recogniser(entity, regex.compile(pattern, _FLAGS), regex.compile(trigger, _FLAGS), check, near)


_HAN = "\u4e00-\u9fa5"
_HAN_NUMBER = "0-9一二三四五六七八九十百"
# Borders of numbers: no further digit, also not beyond a decimal point.
_D = r"(?<!\d)(?<!\d[.])"
_E = r"(?!\d)(?![.]\d)"
# Borders of codes of letters and digits.
_W = r"(?<![A-Za-z0-9])"
_X = r"(?![A-Za-z0-9])"

_CARD_WORDS = r"卡号|银行卡|信用卡|储蓄卡|借记卡|账号|账户|\bcard|\bcc\b|\bvisa|mastercard|amex"
_ID_WORDS = r"身份证|证件|\bID card"
_PHONE_WORDS = (
    r"(?:(?:电话|手机|联系方式|致电|座机|热线|拨打|传真)(?:号码|号)?"
    r"|\b(?:phone|telephone|mobile|cell|tel|fax|whatsapp|(?:call|text|reach|dial|contact)(?: me| us| him| her)?)"
    r"(?:[ _]?number|[ ]no\.?|[ ]#)?)[\s:.=\"']{0,4}(?:(?:是|为|is|at|on)[\s:\"']{0,3})?\Z"
)


def _never(_: str) -> bool:
    """The check of shapes that say nothing without their context."""
    return False


def _dialable(number: str) -> bool:
    return 8 <= len(checks.compact(number)) <= 15


_PHONES = (
    _look(
        "PHONE",  # Chinese mobile
        rf"{_D}(?:(?:\+|00)?86[ -]?)?1[3-9](?:\d{{9}}|\d([ .-])\d{{4}}\1\d{{4}}|\d\d([ .-])\d{{4}}\2\d{{3}}){_E}",
        r"1[3-9]\d",
    ),
    _look(
        "PHONE",  # Chinese landline
        rf"{_D}(?:\(0\d{{2,3}}\)[ ]?|0(?:10|2\d|[3-9]\d\d)[ -]?)[2-8]\d{{6,7}}(?:(?:-|转|ext\.?)[ ]?\d{{1,6}})?(?!\d)",
        r"\d{7}",
    ),
    _look("PHONE", rf"{_D}[48]00[ -]\d{{3}}[ -]?\d{{4}}{_E}", "[48]00"),
    _look("PHONE", r"[幺一壹][三四五六七八九][〇零一二三四五六七八九幺]{9}", "[幺一壹][三四五六七八九]"),
    _look(
        "PHONE",  # international
        rf"(?<![\d+])\+[1-9]\d{{0,2}}(?:[ .-]?(?:\(\d{{1,4}}\)|\d{{1,4}})){{2,6}}{_E}",
        r"\+\d",
        _dialable,
    ),
    _look(
        "PHONE",  # North American
        rf"{_D}(?<!\d-)(?:1[ .-])?(?:\([2-9]\d\d\)[ ]?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{{4}}"
        r"(?:[ ]?(?:x|ext\.?)[ ]?\d{1,6})?(?!\d)(?!-\d)",
        r"\d{4}",
    ),
    _look("PHONE", rf"{_D}(?<!\d-)0\d{{2,4}}([ -])\d{{3,4}}\1\d{{3,4}}{_E}(?!-\d)", r"0\d\d"),
    _look(
        "PHONE",  # any, where the words before say so
        rf"{_D}(?<!\d-)(?=(?:[ ().-]{{0,2}}\d){{6}})(?:\(\d{{1,5}}\)|\d{{1,5}})(?:[ .-]?\d{{2,5}}){{1,4}}{_E}(?!-\d)",
        r"\d{3}",
        _never,
        _PHONE_WORDS,
    ),
)

_PAPERS = (
    _look("ID_CARD", r"(?<!\d)[1-9]\d(?:[ -]?\d){15}[ -]?[\dX](?!\d)", r"\d\d", checks.chinese_id, None),
    _look("ID_CARD", r"(?<!\d)(?:\d{17}[\dX]|[1-9]\d{14})(?!\d)", r"\d{15}", _never, _ID_WORDS),
    _look("CARD", rf"{_D}[2-6]\d(?:[ -]?\d){{11,17}}{_E}", r"\d\d", checks.luhn),
    _look("CARD", rf"{_D}\d(?:[ -]?\d){{11,18}}{_E}", r"\d\d", _never, rf"(?:{_CARD_WORDS})[^\d\n]{{0,20}}\Z"),
    _look("SSN", r"(?<!\d)(?<!\d-)(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?!\d)(?!-\d)", r"\d-\d\d-\d"),
    _look("SSN", r"(?<!\d)\d{3}[ ]?\d\d[ ]?\d{4}(?!\d)", r"\d{3}", _never, r"\bssn\b|social security"),
    _look(
        "COMPANY_ID",
        rf"{_W}[1-9A-HJ-NPQRTUWXY][1-9]\d{{6}}[0-9A-HJ-NPQRTUWXY]{{10}}{_X}",
        r"\d{6}",
        checks.chinese_company,
        "信用代码|税号",
    ),
    _look("PASSPORT", rf"(?-i:{_W}(?:[EG]\d{{8}}|E[A-HJ-NP-Z]\d{{7}}|[HM]\d{{8}}){_X})", r"\d{7}"),
    _look("PASSPORT", rf"{_W}[A-Z]{{0,2}}\d{{7,10}}{_X}", r"\d{7}", _never, "护照|通行证|passport"),
    _look(
        "IBAN",
        rf"{_W}[A-Z]{{2}}\d\d(?:[A-Z0-9]{{11,30}}|(?:[ ][A-Z0-9]{{4}}){{2,7}}(?:[ ]\d{{1,3}})?){_X}",
        r"[A-Z]{2}\d\d",
        checks.iban,
    ),
    _look(
        "PLATE",
        r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼使领](?-i:[A-HJ-NP-Z][·•. ]?"
        rf"(?:[A-HJ-NP-Z0-9]{{4}}[A-HJ-NP-Z0-9挂学警港澳]|[A-HJ-NP-Z][A-HJ-NP-Z0-9]\d{{4}}|\d{{5}}[A-HJ-NP-Z]){_X})",
        f"[{_HAN}][A-Z]",
    ),
)

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_ONLINE = (
    _look(
        "EMAIL",
        r"[A-Z0-9._%+\-]{1,64}+(?<![.%+])(?:@|%40)(?:[A-Z0-9](?:[A-Z0-9\-]{0,61}[A-Z0-9])?\.){1,8}[A-Z]{2,63}",
        "@|%40",
    ),
    _look(
        "WECHAT",
        r"(?:微信|薇信|威信|wechat|weixin|\bvx|\bwx|加v)(?:号码|号|_?ID|账号)?(?:是|为|[:\s\"'=]){0,4}"
        r"(?P<value>[A-Z][A-Z0-9_\-]{5,19})",
        "微信|薇信|威信|wechat|weixin|vx|wx|加v",
    ),
    _look(
        "QQ",
        r"(?:QQ|扣扣|企鹅号)(?:号码|号|群)?(?:是|为|[:\s\"'=]){0,4}(?P<value>[1-9]\d{4,10})(?!\d)",
        "QQ|扣扣|企鹅",
    ),
    _look(
        "IP",
        rf"(?<![\d.])(?<!(?:version|release|build|\bv|版本|版本号)[ :=]{{0,3}})(?:{_OCTET}\.){{3}}{_OCTET}"
        r"(?!\d|\.\d|-)",
        r"\d\.\d",
        checks.public_address,
    ),
    _look(
        "IP",
        r"(?<![0-9a-z:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{1,4}(?![0-9a-z:])",
        "[0-9a-f]:[0-9a-f:]",
        lambda value: len(value) > 9 and checks.public_address(value),
    ),
    _look(
        "MAC",
        r"(?<![0-9a-f:-])[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![0-9a-f:-])",
        r"[0-9a-f]{2}[:-][0-9a-f]{2}[:-]",
    ),
)

_ZH_STREET = rf"(?:路|街|大道|道|巷|弄|胡同|里|村|小区|花园|苑|园)[{_HAN_NUMBER}\-]{{1,6}}(?:号|弄|栋|幢|座|#)"
_EN_STREET = (
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Terrace|Way|Parkway"
    r"|Pkwy|Highway|Hwy|Close|Crescent)\b"
)
_NAME = r"(?-i:[A-Z])[\w'.\-]{0,30}"
_PLACES = (
    _look(
        "ADDRESS",
        # The possessive prefix takes what leads to an address ("请寄到") out of it.
        rf"(?:[{_HAN}]{{0,12}}(?:到|往|至|在|于|给|是|为)|[{_HAN}]{{0,8}}地址|[{_HAN}]{{0,4}}住)?+"
        rf"(?P<value>[{_HAN}A-Z0-9]{{1,24}}?{_ZH_STREET}(?:院|楼)?"
        rf"(?:[{_HAN}]{{2,10}}?(?:大厦|广场|花园|小区|公寓|苑|城|中心))?"
        rf"(?:[A-Z{_HAN_NUMBER}]{{1,4}}(?:栋|幢|座|号楼|单元|层|楼)){{0,3}}(?:\d{{1,5}}(?:室|房|号|户)?)?)",
        _ZH_STREET,
    ),
    _look(
        "ADDRESS",
        rf"{_W}\d{{1,6}}[A-Z]?(?:[ ]{{1,2}}{_NAME}){{1,4}}[ ]{{1,2}}{_EN_STREET}\.?"
        r"(?:,?\s{1,2}(?:Apt|Apartment|Suite|Ste|Unit|Flat|\#)[. ]{0,2}\w{1,6})?"
        rf"(?:,?\s{{1,2}}{_NAME}(?:[ ]{_NAME}){{0,2}},?\s{{1,2}}(?-i:[A-Z]{{2}})[ ]\d{{5}}(?:-\d{{4}})?)?",
        rf"\d[A-Z]?[ ]{{1,2}}[A-Z][^\n]{{0,140}}?{_EN_STREET}",
    ),
    _look(
        "ADDRESS",  # any line that is called one and holds a number and a name
        r"(?:(?<!mail )(?<!IP )\baddress(?:[ ]is)?|\blives?[ ]at)[:\s]{1,3}"
        r"(?P<value>(?=[^\n]{0,40}(?-i:[A-Z]))(?=[^\n]{0,40}\d)(?-i:[A-Z0-9])[^\n,;?!@]{4,60})",
        r"\baddress|\blives? at",
    ),
    _look("ADDRESS", rf"{_W}P\.?[ ]?O\.?[ ]Box[ ]\d{{1,8}}", "Box"),
)

_GIVEN = r"(?-i:\p{Lu})[^\W\d_]{1,20}"
_PEOPLE = (
    _look(
        "PERSON",
        r"\bmy name(?: is|['’]s) (?!(?:not|on|in|the|a|an|still|wrong|mis\w+)\b)"
        rf"(?P<value>[^\W\d_]{{2,20}}(?: {_GIVEN}){{0,2}})",
        "my name",
    ),
    _look("PERSON", rf"\b(?:Mr|Mrs|Ms|Dr|Prof)\.? (?P<value>{_GIVEN}(?: {_GIVEN}){{0,2}})", "Mr|Ms|Dr|Prof"),
)

_SECRETS = tuple(
    _look("SECRET", pattern, trigger)
    for pattern, trigger in (
        (r"eyJ[A-Z0-9_\-]{8,4000}\.eyJ[A-Z0-9_\-]{8,4000}\.[A-Z0-9_\-]{8,4000}", r"eyJ[A-Z0-9_\-]{8,4000}\."),
        (r"(?-i:AKIA|ASIA)[0-9A-Z]{16}", "AKIA|ASIA"),
        (r"gh[pousr]_[A-Z0-9]{36,255}|github_pat_[A-Z0-9_]{22,255}", "gh[pousr]_|github_pat"),
        (rf"{_W}sk-(?:proj-|ant-|or-)?[A-Z0-9_\-]{{20,255}}", "sk-"),
        (rf"{_W}(?:sk|pk|rk)_(?:live|test)_[A-Z0-9]{{16,255}}", "_live_|_test_"),
        (r"(?-i:AIza)[A-Z0-9_\-]{35}", "AIza"),
        (r"xox[abprs]-[A-Z0-9\-]{10,255}", "xox"),
        (rf"{_W}(?-i:LTAI|AKID)[A-Z0-9]{{12,40}}", "LTAI|AKID"),
        (
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,10000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?",
            "PRIVATE KEY",
        ),
        (
            r"(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?token|密码|口令)[\"']?"
            r"\s{0,2}(?:[:=]|是|为|\bis\b)\s{0,2}[\"']?(?P<value>[A-Z0-9!@#$%^&*_\-+=/.~]{6,64}(?<![.]))",
            "pass|pwd|secret|key|token|密码|口令",
        ),
        (r"Bearer\s(?P<value>[A-Z0-9_\-.=]{20,4000})", "Bearer"),
        (r"://[^/\s:@]{1,64}:(?P<value>[^/\s@]{1,64})@", "://[^/]{3}"),
    )
)

RECOGNISERS = _PAPERS + _PHONES + _ONLINE + _PLACES + _PEOPLE + _SECRETS
