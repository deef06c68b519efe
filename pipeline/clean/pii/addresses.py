"""What postal addresses look like. They have no check digits: what these patterns find is a measured share."""

from pipeline.clean.pii.recogniser import HAN, LETTERS_AFTER, LETTERS_BEFORE, look

_HAN_NUMBER = "0-9一二三四五六七八九十百"
_NO = rf"[{_HAN_NUMBER}\\-]{{1,6}}"
_ZH_PART = rf"(?:(?!\d{{5}})[{HAN}A-Z0-9])"
"""A character on the way to a house number, which no telephone number is a part of."""
_ZH_STREET = rf"(?:路|街|大道|道|巷|弄|胡同|里|村|小区|花园|苑|园){_NO}(?:号楼|号|弄|栋|幢|座|#)"
_ZH_DISTRICT = rf"[{HAN}]{{2,8}}?[省市区县旗]"
_ZH_INSIDE = (
    rf"(?:院|楼)?(?:[{HAN}]{{2,10}}?(?:大厦|广场|花园|小区|公寓|苑|城|中心))?"
    rf"(?:[A-Z{_HAN_NUMBER}]{{1,4}}(?:栋|幢|座|号楼|单元|层|楼)){{0,3}}(?:\d{{1,5}}(?:室|房|号|户)?)?"
)
# The possessive prefix takes what leads to an address ("请寄到") out of it.
_ZH_LEAD = rf"(?:[{HAN}]{{0,12}}(?:到|往|至|在|于|给|是|为)|[{HAN}]{{0,8}}(?:地址|住址)|[{HAN}]{{0,4}}住)?+(?<!\d)"

_EN_STREET = (
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Terrace|Way|Parkway"
    r"|Pkwy|Highway|Hwy|Close|Crescent)\b"
)
_NAME = r"(?-i:\p{Lu})[\w'.\-]{0,30}+"
_WORD = r"[^\W\d][\w'.\-]{0,30}+"
_WORDS = rf"{_WORD}(?:[ ]{_WORD}){{0,3}}"
_NAMES = rf"{_NAME}(?:[ ](?:{_NAME}|de|del|do|da|di|la|le|am|an|der|van|of)){{0,3}}"
_STEP = r"[ ]{0,3}(?:,|\n)[ ,\n]{0,8}"
"""From one line of an address to the next."""
_UNITS = "Apt|Apartment|Suite|Ste|Unit|Flat|Box"
_UNIT = rf"(?:{_UNITS})(?:[ ]|\.[ ]?)\d\w{{0,5}}\b"
_STATE = r"(?-i:[A-Z]{2})\b"
_POSTCODE = r"\d{4,6}(?:-\d{4})?\b"
_TOWN = rf"(?:(?:(?:{_STEP}|[ ]){_NAMES}){{0,3}}(?:(?:{_STEP}|[ ]){_STATE})?[ ,\n]{{1,6}}{_POSTCODE})?"
"""Town, state or country, and postcode; nothing where there is no postcode."""
_BEFORE = "Rue|Calle|Via|Viale|Rua|Avda|Avenida|Paseo|ul|ulica|Plaza|Piazza"
_BEFORE_NAME = rf"(?:{_BEFORE})\b\.?"
_BEHIND = "straße|strasse|gasse|gatan|gata|vägen|vegen|vej|gade|katu|laan|straat|utca|stræti|braut"
_BEHIND_NAME = rf"(?:{_BEHIND})"

ADDRESSES = (
    look(
        "ADDRESS",
        rf"{_ZH_LEAD}(?P<value>{_ZH_PART}{{1,24}}?{_ZH_STREET}{_ZH_INSIDE})",
        "|".join(number + unit for number in "0一二三四五六七八九十百-" for unit in "号弄栋幢座#"),
    ),
    look(
        "ADDRESS",  # a district and a house in it, without a street
        rf"{_ZH_LEAD}(?P<value>{_ZH_DISTRICT}{_ZH_PART}{{1,16}}?\d{{1,4}}(?:号楼|号院|栋|幢|弄){_ZH_INSIDE})",
        "号楼|号院|栋|幢|弄",
    ),
    look(
        "ADDRESS",
        rf"{LETTERS_BEFORE}\d{{1,6}}[A-F]?(?:[ ]{{1,2}}\d{{1,5}})?(?:[ ]{{1,2}}{_NAME}){{1,4}}[ ]{{1,2}}{_EN_STREET}\.?"
        rf"(?:(?:{_STEP}|[ ]{{1,2}})(?:{_UNIT}|\#[ ]?\d{{1,5}}))?{_TOWN}",
        "0 |0a |0b |0c |0d |0e |0f ",
    ),
    look(
        "ADDRESS",  # a street in any language, known by the flat behind it
        rf"{LETTERS_BEFORE}(?:\d{{1,6}}[ ])?(?:\d{{1,6}}[ ])?{_WORDS}(?:[ ]\d{{1,6}}\.?)?"
        rf"(?:[ ]|{_STEP}){_UNIT}(?:[ ]{_UNIT})?{_TOWN}",
        "|".join(word + end for word in _UNITS.split("|") for end in (" 0", ". 0", ".0")),
    ),
    look(
        "ADDRESS",  # a house in any language, known by the town and postcode behind it
        rf"{LETTERS_BEFORE}\d{{1,6}}[ ](?:\d{{1,6}}[ ])?{_WORDS}(?:[ ]\d{{1,6}})?"
        rf"(?:{_STEP}{_NAMES}){{1,2}},?[ ]?(?:{_STEP})?(?-i:[A-Z]{{2}})?[ \n]{{1,6}}\d{{5}}(?:-\d{{4}})?"
        rf"{LETTERS_AFTER}",
        "00000",
    ),
    look(
        "ADDRESS",  # streets as other languages of Europe call them
        rf"{LETTERS_BEFORE}(?:\d{{1,6}}[ ])?(?:{_BEFORE_NAME}[ ]{_NAMES}|(?-i:\p{{Lu}})\w{{2,20}}{_BEHIND_NAME})"
        rf"[ ]\d{{1,5}}\b"
        rf"(?:(?:{_STEP}|[ ]){_UNIT})?{_TOWN}",
        "|".join(
            [*(f"{word} |{word}. " for word in _BEFORE.split("|")), *(f"{word} 0" for word in _BEHIND.split("|"))]
        ),
    ),
    look(
        "ADDRESS",  # any line that is called one and holds a number and a name
        r"(?:(?<!mail )(?<!IP )\baddress(?:[ ]is)?|\blives?[ ]at)[:\s]{1,3}"
        r"(?P<value>(?=[^\n]{0,40}(?-i:[A-Z]))(?=[^\n]{0,40}\d)(?-i:[A-Z0-9])[^\n,;?!@]{4,60})",
        "address|lives at|live at",
    ),
    look("ADDRESS", rf"{LETTERS_BEFORE}P\.?[ ]?O\.?[ ]Box[ ]\d{{1,8}}{_TOWN}", "Box"),
    look("ADDRESS", rf"{LETTERS_BEFORE}(?:PSC|Unit|CMR)[ ]\d{{1,5}},?[ ]Box[ ]\d{{1,5}}{_TOWN}", "Box"),
)
