"""Which texts are nearly the same: shingles, their MinHash signatures, and a search that proposes by bands and decides
by the exact Jaccard index.

Signatures are datasketch's own, value for value, made a batch at a time; the search replaces its `MinHashLSH`, which
costs more than all the rest and cannot verify.
"""
