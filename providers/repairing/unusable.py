"""Decide whether a node has been unusable for so long that it may be repaired. Pure.

The platforms call it with what schedulers and their own states show.
"""

from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import REPAIR_NODE


def is_unusable_for(
    patience: float, *, since: float | None, now: float, created: float | None = None
) -> bool:
    """Return whether a node cannot be used since `patience` seconds at `now`.

    Args:
        patience: how long a node may be unusable without being repaired, in seconds.
        since: since when it cannot be used, in unix seconds; None: nobody tells.
        now: the platform's time, in unix seconds.
        created: when the machine was made, in unix seconds, where the platform tells.
    """
    missing = []
    if since is None:
        missing.append("it does not say since when the node cannot be used")
    elif since > now or (created is not None and since < created):
        missing.append("the node cannot be used since a time at which it did not exist")
    elif now - since < patience:
        missing.append(f"the node cannot be used for {now - since:.0f} of {patience:.0f} s")
    return not find_gaps(REPAIR_NODE, Observation("the node's scheduler", missing))
