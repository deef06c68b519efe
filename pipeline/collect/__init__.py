"""From what happened to what was said about it: feedback joined to its interactions."""
