"""How much of a dataset one user may supply."""

import math
from collections import Counter
from collections.abc import Sequence

from pipeline.records import Dropped, DropReason, Example, PreferenceExample, SftExample, content_id


def cap_users(examples: Sequence[Example], max_share: float, floor: int) -> tuple[list[Example], list[Dropped]]:
    """Leave out what one user supplies beyond `max_share` of the rows, or beyond `floor` rows if that is more.

    Pairs are kept before targets before votes, and among equals a hash decides: neither the order of the rows nor
    the hour in which somebody floods has any weight. A row of several users counts for each. Rows of no known user
    are not capped: strangers are not one person.

    Returns:
        The kept rows in their order, and the interactions that no kept row comes from.
    """
    limit = max(floor, math.floor(max_share * len(examples) + 1e-9))
    supplied: Counter[str] = Counter()
    kept: set[int] = set()
    for place in sorted(range(len(examples)), key=lambda place: _rank(examples[place])):
        users = examples[place].source.user_keys
        if all(supplied[user] < limit for user in users):
            supplied.update(users)
            kept.add(place)
    rows = [example for place, example in enumerate(examples) if place in kept]
    return rows, left_out(examples, rows, DropReason.USER_CAP)


def left_out(before: Sequence[Example], kept: Sequence[Example], reason: DropReason) -> list[Dropped]:
    """The interactions that were sources before and are none any more, by id."""
    still = {interaction_id for example in kept for interaction_id in example.source.interaction_ids}
    gone = {i for example in before for i in example.source.interaction_ids} - still
    return [Dropped(interaction_id=interaction_id, reason=reason) for interaction_id in sorted(gone)]


def _rank(example: Example) -> tuple[int, str]:
    kind = 0 if isinstance(example, PreferenceExample) else 1 if isinstance(example, SftExample) else 2
    return kind, content_id(example.model_dump(mode="json"))
