"""Personal data against plain Presidio: `make bench-pii`, or `python -m tests.benchmarks.pii --quick`.

Quality: what is found in marked texts, by kind. Speed: CPU time of one core on conversations, both in turns on the
same texts. `chinese/` holds sentences written for this project in six kinds of business, personal data marked as
`[PERSON:王小明]`; `[~PERSON:小张]` may be found or not, everything unmarked must not be.
"""
