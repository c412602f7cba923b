"""Making an object once, and finding what an interrupted create has made.

The lifecycles of kinds that a platform creates use it.
"""

from gpuform.providers.creating.capacity import (
    ROUND,
    first_with_capacity,
    none_free,
    patience_of,
)
from gpuform.providers.creating.creating import (
    AGAIN,
    Attempt,
    Creation,
    Timed,
    create_once,
    kept_properties,
    name_taken,
)
from gpuform.providers.creating.evidence import (
    SKEW,
    Candidate,
    covers,
    credible_time,
    is_of_another_time,
    judge,
    question,
)
from gpuform.providers.creating.forgetting import (
    is_refusal,
    require_absence,
    seconds_until_settled,
)
from gpuform.providers.records import SETTLE

__all__ = [
    "AGAIN",
    "ROUND",
    "SETTLE",
    "SKEW",
    "Attempt",
    "Candidate",
    "Creation",
    "Timed",
    "covers",
    "create_once",
    "credible_time",
    "first_with_capacity",
    "is_of_another_time",
    "is_refusal",
    "judge",
    "kept_properties",
    "name_taken",
    "none_free",
    "patience_of",
    "question",
    "require_absence",
    "seconds_until_settled",
]
