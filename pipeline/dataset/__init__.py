"""From cleaned records to an immutable dataset: golden suite, examples, caps, split, snapshot."""
