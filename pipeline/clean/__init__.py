"""From rated interactions to clean records: `clean_records` (steps.py), then `drop_duplicates` (dedup.py).

text.py repairs and compares texts, quality.py says which answers teach nothing, pii/ replaces personal data.
"""
