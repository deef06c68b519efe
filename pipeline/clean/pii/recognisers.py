"""What each kind of structured personal data looks like, in texts of any mix of languages.

`\\b` fails beside Chinese, whose characters are word characters, so borders are look-arounds over ASCII letters or
digits, and often over digits only: people glue numbers to words. To add a kind: a recogniser here, an example in
`tests/unit/test_clean_patterns.py`. Every repetition is bounded, because a message may be a megabyte long.
"""

from pipeline.clean.pii import checks
from pipeline.clean.pii.addresses import ADDRESSES
from pipeline.clean.pii.credentials import SECRETS
from pipeline.clean.pii.people import PEOPLE
from pipeline.clean.pii.recogniser import (
    DIGITS_AFTER,
    DIGITS_BEFORE,
    LETTERS_AFTER,
    LETTERS_BEFORE,
    look,
    never,
)

_D, _E = DIGITS_BEFORE, DIGITS_AFTER
_W, _X = LETTERS_BEFORE, LETTERS_AFTER

_CARD_WORDS = r"卡号|银行卡|信用卡|储蓄卡|借记卡|账号|账户|\bcard|\bcc\b|\bvisa|mastercard|amex"
_ID_WORDS = r"身份证|证件|\bID card"
_PHONE_WORDS = (
    r"(?:(?:电话|手机|联系方式|致电|座机|热线|拨打|传真)(?:号码|号)?"
    r"|\b(?:phone|telephone|mobile|cell|tel|fax|whatsapp|(?:desk|office|home|work)(?=:)|(?:call(?:ing)?|text|reach|dial|contact|message|messages|answering)"
    r"(?: me| us| you| him| her| them)?(?: back)?)"
    r"(?:[ _]?number|[ ]no\.?|[ ]#)?)[\s:.=\"']{0,4}(?:(?:是|为|is|at|on|to)[\s:\"']{0,3})?\Z"
)


def _dialable(number: str) -> bool:
    return 8 <= len(checks.compact(number)) <= 15


_SPOKEN = "".join(map(chr, checks.SPOKEN_DIGITS))
# A serial number begins with capitals ("PICC138…"); what is glued to a telephone does not, but for TEL and MOB.
_CODE = r"(?<!(?-i:(?!TEL|MOB)[A-Z]{3}))"

_PHONES = (
    look(
        "PHONE",  # Chinese mobile
        rf"{_D}{_CODE}(?:(?:\+|00)?86[ -]?)?1[3-9]"
        rf"(?:\d{{9}}|\d([ .-]{{1,2}})\d{{4}}\1\d{{4}}|\d\d([ .-])\d{{4}}\2\d{{3}}|\d[ -]\d{{8}}|\d{{5}}[ -]\d{{4}})"
        rf"{_E}",
        "000",
    ),
    look(
        "PHONE",  # the same digit by digit
        rf"{_D}1([ .-])[3-9](?:\1\d){{9}}{_E}(?!\1\d)",
        "0 0 0 0 0|0-0-0-0-0|0.0.0.0.0",
    ),
    look(
        "PHONE",  # Chinese landline
        rf"{_D}(?:\(0\d{{2,3}}\)[ ]?|0(?:10|2\d|[3-9]\d\d)[ -]?)[2-8]\d{{6,7}}(?:(?:-|转|ext\.?)[ ]?\d{{1,6}})?(?!\d)",
        "0000000",
    ),
    look("PHONE", rf"{_D}[48]00[ -]\d{{3}}[ -]?\d{{4}}{_E}", "000"),
    look(
        "PHONE",  # the same in words; some or all digits
        rf"(?<![\d{_SPOKEN}])(?=[\d ,、-]{{0,12}}[{_SPOKEN}])[1幺么一壹][3-9三四五六七八九叁肆伍陆柒捌玖拐勾]"
        rf"(?:[ ,、-]?[\d{_SPOKEN}]){{9}}(?![\d{_SPOKEN}])",
        "|".join(_SPOKEN),
    ),
    look(
        "PHONE",  # international
        rf"(?<![\d+])\+[1-9]\d{{0,2}}(?:[ .-]?(?:\(\d{{1,4}}\)|\d{{1,4}})){{2,6}}{_E}",
        "+0",
        _dialable,
    ),
    look(
        "PHONE",  # North American
        rf"{_D}(?<!\d-)(?:(?:00)?1[ .-])?(?:\([2-9]\d\d\)[ ]?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{{4}}"
        r"(?:[ ]?(?:x|ext\.?)[ ]?\d{1,6})?(?!\d)(?!-\d)",
        "0000",
    ),
    look(
        "PHONE",  # with the zero of a trunk call; nine digits, which a date has not
        rf"{_D}(?<!\d-)(?=(?:\d[ -]?){{9,11}}(?![ -]?\d))(?!\d{{3}}[ -]\d\d[ -]\d{{4}})"
        rf"0\d{{1,4}}(?:[ -]\d{{2,4}}){{2,4}}{_E}(?!-\d)",
        "0 00|0-00",
    ),
    look(
        "PHONE",  # with an area code in brackets
        rf"{_D}(?<!\d-)(?=(?:[ ()-]{{0,2}}\d){{8}})\(\d{{1,5}}\)[ ]?\d{{2,4}}(?:[ -]\d{{2,4}}){{1,3}}{_E}(?!-\d)",
        "(0",
    ),
    look(
        "PHONE",  # where the word behind says so
        rf"{_D}(?<!\d-)(?=(?:[ ().-]{{0,2}}\d){{7}})(?:\+|\()?\d{{1,5}}\)?(?:[ .-]?\d{{2,5}}){{1,4}}(?:[ ]?x\d{{1,6}})?"
        r"(?=[ ]\(?(?:office|fax|mobile|cell|phone|home|desk|work)\b)",
        "office|fax|mobile|cell|phone|home|desk|work",
    ),
    look(
        "PHONE",  # any, where the words before say so
        rf"{_D}(?<!\d-)(?=(?:[ ().-]{{0,2}}\d){{6}})(?:\(\d{{1,5}}\)|\d{{1,5}})(?:[ .-]?\d{{2,5}}){{1,4}}{_E}(?!-\d)",
        "00",
        never,
        _PHONE_WORDS,
    ),
)

# Four digits that issuers of cards begin with (ISO/IEC 7812); a date such as 2025 is none.
_ISSUER = r"(?:[3456](?:[ -]?\d){3}|2[ -]?[2-7][ -]?\d[ -]?\d|2131|1800)"

_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼使领"
_PAPERS = (
    look("ID_CARD", r"(?<!\d)[1-9](?:[ -]?\d){16}[ -]?[\dX](?!\d)", "00|0 0|0-0", checks.chinese_id),
    look("ID_CARD", r"(?<!\d)(?:\d{17}[\dX]|[1-9]\d{14})(?!\d)", "0" * 15, never, _ID_WORDS),
    look("CARD", rf"{_D}{_ISSUER}(?:[ -]?\d){{9,15}}{_E}", "00|0 0|0-0", checks.luhn),
    look(
        "CARD",
        rf"{_D}\d(?:[ -]?\d){{11,18}}{_E}",
        "卡|账号|账户|card|cc|visa|amex",
        never,
        rf"(?:{_CARD_WORDS})[^\d\n]{{0,20}}\Z",
    ),
    look("SSN", r"(?<!\d)(?<!\d-)(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?!\d)(?!-\d)", "0-00-0"),
    look(
        "SSN",
        r"(?<!\d)\d{3}[ ]?\d\d[ ]?\d{4}(?!\d)",
        "ssn|social security|security number",
        never,
        r"\bssn\b|social security|security number",
    ),
    look(
        "DRIVER_LICENSE",
        rf"{_W}(?=[A-Z\-]{{0,14}}\d)[A-Z0-9](?:-?[A-Z0-9]){{4,14}}{_X}",
        "license|licence",
        never,
        r"\bdriv(?:er|ing)[’']?s?[’']?[ ]licen[sc]e(?:[ ](?:number|no\.?|\#))?(?:[ ]is|:)?[ ]{0,2}\Z",
    ),
    look(
        "COMPANY_ID",
        rf"{_W}[1-9A-HJ-NPQRTUWXY][1-9]\d{{6}}[0-9A-HJ-NPQRTUWXY]{{10}}{_X}",
        "000000",
        checks.chinese_company,
        "信用代码|税号",
    ),
    look("PASSPORT", rf"(?-i:{_W}(?<!准字)(?:[EG]\d{{8}}|E[A-HJ-NP-Z]\d{{7}}|[CHLM]\d{{8}}){_X})", "0000000"),
    look(
        "PASSPORT",
        rf"{_W}[A-Z]{{0,2}}\d{{7,10}}{_X}",
        "护照|通行证|台胞证|回乡证|passport",
        never,
        "护照|通行证|台胞证|回乡证|passport",
    ),
    look(
        "IBAN",
        rf"{_W}[A-Z]{{2}}\d\d(?:[A-Z0-9]{{11,30}}|(?:[ ][A-Z0-9]{{4}}){{2,7}}(?:[ ]\d{{1,3}})?){_X}",
        "00",
        checks.iban,
    ),
    look(
        "PLATE",
        rf"[{_PROVINCES}](?-i:[A-HJ-NP-Z][·•. ]?"
        rf"(?:[A-HJ-NP-Z0-9]{{4}}[A-HJ-NP-Z0-9挂学警港澳]|[A-HJ-NP-Z][A-HJ-NP-Z0-9]\d{{4}}|\d{{5}}[A-HJ-NP-Z]){_X})",
        "|".join(_PROVINCES),
    ),
)

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_ONLINE = (
    look(
        "EMAIL",
        # Not the end of a URL's password and the host behind it.
        r"(?<!://[^/\s:@]{0,64}:[^/\s@]{0,64})"
        r"(?:[A-Z0-9._%+\-]{1,64}+(?<![.%+])@|[A-Z0-9._+\-]{1,64}+(?<![.+])%40)"
        r"(?:[A-Z0-9](?:[A-Z0-9\-]{0,61}[A-Z0-9])?\.){1,8}[A-Z]{2,63}",
        "@|%00",
    ),
    look(
        "EMAIL",  # so written that programs shall not read it
        r"[A-Z0-9._%+\-]{1,64}+[ ]?[\[(](?:at|@)[\])][ ]?[A-Z0-9\-]{1,63}"
        r"(?:(?:\.|[ ]?[\[(]dot[\])][ ]?)[A-Z0-9\-]{2,63}){1,4}",
        "[at]|(at)|[@]|(@)",
    ),
    look(
        "WECHAT",
        # vx and wx glued to what follows are no part of a longer code.
        r"(?:微信|薇信|威信|wechat|weixin|(?<![A-Z0-9])[vw]x(?=[\s:是为号\"'=])|(?<![A-Z0-9/+=_.\-])[vw]x|加v)"
        r"(?:号码|号|_?ID|账号)?(?:是|为|[:\s\"'=]){0,4}"
        r"(?P<value>[A-Z][A-Z0-9_\-]{5,19})",
        "微信|薇信|威信|wechat|weixin|vx|wx|加v",
    ),
    look(
        "QQ",
        r"(?:QQ|扣扣|企鹅号)(?:号码|号|群)?(?:是|为|[:\s\"'=]){0,4}(?P<value>[1-9]\d{4,10})(?!\d)",
        "QQ|扣扣|企鹅",
    ),
    look(
        "IP",
        rf"(?<![\d.])(?<!(?:version|release|build|\bv|版本|版本号|固件|firmware|内核|升级到)[ :=]{{0,3}})"
        rf"(?:{_OCTET}\.){{3}}{_OCTET}"
        r"(?!\d|\.\d|-)(?![ ]?(?:这个|的)?[新旧老]?版)",
        "0.0",
        checks.public_address,
    ),
    look(
        "IP",
        r"(?<![0-9a-z:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{1,4}(?![0-9a-z:])",
        ":0|:a|:b|:c|:d|:e|:f|::",
        lambda value: len(value) > 9 and checks.public_address(value),
    ),
    look(
        "MAC",
        r"(?<![0-9a-f:-])[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![0-9a-f:-])",
        ":0|:a|:b|:c|:d|:e|:f|-0|-a|-b|-c|-d|-e|-f",
    ),
)

RECOGNISERS = _PAPERS + _PHONES + _ONLINE + ADDRESSES + PEOPLE + SECRETS
