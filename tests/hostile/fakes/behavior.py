"""Define how a platform behaves in a complete course: late, terse, with a wrong clock."""

from dataclasses import dataclass

# Which ids Samsung's `AsyncResponse` has after a create of several nodes.
FIRST, ALL, FEWER, MORE = "first", "all", "fewer", "more"
FABRIC, REQUEST, STRANGER, NONE = "fabric", "request", "stranger", "none"
BATCH_IDS = (FIRST, ALL, FEWER, MORE, FABRIC, REQUEST, STRANGER, NONE)

# What the platform says about the creation of an object.
TRUE, EARLY, LATE, YEAR_1, EPOCH, ABSENT = "true", "early", "late", "year 1", "epoch", "absent"
CREATED_AT = (TRUE, EARLY, LATE, YEAR_1, EPOCH, ABSENT)

LONGEST_DELAY = 50
"""Seconds until an object is visible at the latest: less than the minute that gpuform waits."""


@dataclass(frozen=True)
class Behavior:
    """The behavior of a platform; all seconds are of the fakes' clock."""

    list_delay: int = 0
    """Lists show a new object at most so many seconds after the request that made it."""
    get_delay: int = 0
    """A lookup by id finds a new object at most so many seconds after that request."""
    batch_ids: str = FIRST
    page_cap: int = 0
    """A list has at most so many rows on a page, whatever was asked for; 0 is as asked."""
    clock_skew: int = 0
    """How far the platform's clock is ahead, in the Date header and in all its times."""
    created_at: str = TRUE
    crowd: int = 0
    """How many objects of other names the colleague has before the course begins."""


USUAL = Behavior()
