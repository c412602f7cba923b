"""Values that change at known times: how objects progress without a background thread."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

Timeline = list[tuple[float, T]]
"""Pairs of time (unix seconds of the clock) and value, oldest first, at least one."""


def scheduled(stages: Sequence[tuple[T, float]], start: float) -> Timeline[T]:
    """The timeline of stages that begin at `start` and last so many seconds each."""
    timeline: Timeline[T] = []
    for value, seconds in stages:
        timeline.append((start, value))
        start += seconds
    return timeline


def value_at(timeline: Timeline[T], now: float) -> T:
    """The value that holds at `now`; the first one before its time."""
    return until(timeline, now)[-1][1]


def until(timeline: Timeline[T], now: float) -> Timeline[T]:
    """What has happened by `now`: never empty."""
    return [step for step in timeline if step[0] <= now] or timeline[:1]
