"""Texts of users on a terminal."""


def plain(text: str, longest: int) -> str:
    """A text that cannot steer the terminal: users' texts may hold escape sequences and marks that reverse it."""
    shown = "".join(char if char == "\n" or char.isprintable() else "\ufffd" for char in text)
    return shown if len(shown) <= longest else f"{shown[:longest]}… ({len(shown)} characters)"
