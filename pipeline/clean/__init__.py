"""From rated interactions to clean records: `clean_records` (steps.py), then `drop_duplicates` (dedup.py).

text.py repairs and compares texts, quality.py says which answers teach nothing, pii/ replaces personal data (a chunk of
sessions at a time: scrubbing.py), near/ finds texts that are nearly the same, facts.py tells them apart all the same.
"""
