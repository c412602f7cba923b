"""Create objects exactly once, and find what an interrupted create made.

Lifecycles of kinds that a platform creates call `create_once`.
"""

from gpuform.providers.creating.creating import (
    SEARCH_INTERVAL_S,
    Attempt,
    Creation,
    TimedIntent,
    build_name_taken_error,
    build_own_name_error,
    create_once,
    redact_sent_properties,
    refuse_stored_object,
)
from gpuform.providers.creating.evidence import (
    CLOCK_SKEW_S,
    Candidate,
    build_adoption_question,
    compute_remaining_propagation_s,
    find_credible_time,
    has_other_creation_time,
    is_refusal,
    judge_candidates,
    may_equal_sent_value,
    require_absence,
)
from gpuform.providers.records import PROPAGATION_TIME_S

__all__ = [
    "CLOCK_SKEW_S",
    "PROPAGATION_TIME_S",
    "SEARCH_INTERVAL_S",
    "Attempt",
    "Candidate",
    "Creation",
    "TimedIntent",
    "build_adoption_question",
    "build_name_taken_error",
    "build_own_name_error",
    "compute_remaining_propagation_s",
    "create_once",
    "find_credible_time",
    "has_other_creation_time",
    "is_refusal",
    "judge_candidates",
    "may_equal_sent_value",
    "redact_sent_properties",
    "refuse_stored_object",
    "require_absence",
]
