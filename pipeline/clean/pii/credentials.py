"""What opens something: passwords, keys and tokens, by their own form or by what stands before them."""

from pipeline.clean.pii.recogniser import LETTERS_BEFORE, look

_W = LETTERS_BEFORE
_CHARS = r"[A-Z0-9!@#$%^&*_\-+=/.~]"
_MIXED = r"(?=[^\d\s]{0,63}\d)(?=[^A-Z\s]{0,63}[A-Z])"
"""A letter and a digit within what follows: words are no passwords."""

SECRETS = tuple(
    look("SECRET", pattern, trigger)
    for pattern, trigger in (
        (r"eyJ[A-Z0-9_\-]{8,4000}\.eyJ[A-Z0-9_\-]{8,4000}\.[A-Z0-9_\-]{8,4000}", "eyJ"),
        (r"(?-i:AKIA|ASIA)[0-9A-Z]{16}", "AKIA|ASIA"),
        (r"gh[pousr]_[A-Z0-9]{36,255}|github_pat_[A-Z0-9_]{22,255}", "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_"),
        (rf"{_W}sk-(?:proj-|ant-|or-)?[A-Z0-9_\-]{{20,255}}", "sk-"),
        (rf"{_W}(?:sk|pk|rk)_(?:live|test)_[A-Z0-9]{{16,255}}", "_live_|_test_"),
        (r"(?-i:AIza)[A-Z0-9_\-]{35}", "AIza"),
        (r"xox[abprs]-[A-Z0-9\-]{10,255}", "xox"),
        (rf"{_W}(?-i:LTAI|AKID)[A-Z0-9]{{12,40}}", "LTAI|AKID"),
        (
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
            r"(?:(?s:.{0,10000}?)-----END [A-Z ]{0,30}PRIVATE KEY-----|[A-Z0-9+/=\s]{0,10000})",
            "PRIVATE KEY",
        ),
        (
            r"(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?token|密码|口令)[\"']?"
            rf"\s{{0,2}}(?:[:=]|是|为|\bis\b)\s{{0,2}}[\"']?(?P<value>{_CHARS}{{6,64}}(?<![.]))",
            "pass|pwd|secret|key|token|密码|口令",
        ),
        (
            r"(?:(?:secret|account|private|access)[_-]?(?:access[_-]?)?key|client[_-]?secret|token)[\"']?\s{0,2}[:=]\s{0,2}"
            rf"[\"']?(?![0-9a-f]{{8}}-[0-9a-f]{{4}}-)(?P<value>{_MIXED}[A-Z0-9_\-+/=.]{{16,200}})",
            "key|secret|token",
        ),
        (rf"(?:密码|口令)(?P<value>{_MIXED}{_CHARS}{{6,64}}(?<![.]))", "密码|口令"),
        (r"(?:Bearer|Authorization:[ ]?Basic)\s(?P<value>[A-Z0-9_\-.=+/]{12,4000})", "Bearer|Basic"),
        (r"://[^/\s:@]{0,64}:(?P<value>[^/\s]{1,64})@", "://"),
    )
)
