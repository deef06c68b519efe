"""Erasure of users: who is erased, what in the event log is theirs, and how it is taken out of each store."""
