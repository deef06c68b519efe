"""Structured values where `\\b` fails: glued to Chinese on either side, in full width, in brackets."""

from collections.abc import Iterator

from pipeline.clean.pii.spans import Span
from tests.benchmarks.pii.corpus import Marked

_VALUES = {
    "PHONE": ("13912345678", "+86 139-1234-5678", "139 1234 5678", "010-62345678", "0571-88886666"),
    "ID_CARD": ("11010519491231002X", "110105194912310021", "440305 19900307 2311"),
    "CARD": ("6222021234567890128", "6222 0212 3456 7890 128", "4111111111111111", "378282246310005"),
    "COMPANY_ID": ("91310000552936878J",),
    "PASSPORT": ("E12345678", "EA1234567"),
    "IBAN": ("GB82WEST12345698765432",),
    "SSN": ("123-45-6789",),
    "EMAIL": ("zhang.san@example.com", "a_b+c@mail.example.cn"),
    "IP": ("114.25.36.201", "240e:3b7:6c2:11a0:5d1f:93e4:7ab8:20c1"),
    "MAC": ("00:1b:63:84:45:e6",),
    "PLATE": ("京A12345", "浙A·8K3T6"),
    "SECRET": ("AKIAIOSFODNN7EXAMPLE", "sk-proj-abcdefghij0123456789ABCD"),
}
_FRAMES = ("{}", "我的是{}谢谢", "号码{}", "{}已登记", "（{}）", "，{}。", "“{}”", "好{}\n好", "{}、{}")
_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)} | {0x20: 0x3000}


def glued() -> Iterator[Marked]:
    """Every value in every frame, in half and in full width."""
    for entity, values in _VALUES.items():
        for value in values:
            for written in (value, value.translate(_WIDE)):
                for frame in _FRAMES:
                    text = frame.format(written, written)
                    starts = [text.index(written), text.rindex(written)]
                    spans = {Span(start, start + len(written), entity) for start in starts}
                    yield Marked(text, tuple(sorted(spans, key=lambda span: span.start)))
