"""Small worlds whose truth is known: businesses, users with habits, a planted preference and what else is planted.

`content` is what a business's users ask and want; `personal` is the personal data that they let slip. The demo's users
live here, and the proofs (`make prove-fast`, `make prove`) hold what the product says against what was planted.
"""
