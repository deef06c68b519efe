"""How long it takes from a click to live traffic and back, and until an engine is whole again; see `__main__`."""
