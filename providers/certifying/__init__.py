"""What a certification proves of nodes, and for how long: from what was measured alone."""

from gpuform.providers.certifying.acting import DAY, CertificationActions, Reach
from gpuform.providers.certifying.judging import (
    Job,
    Machine,
    Refusal,
    Unreadable,
    change_of,
    covered,
    due_notices,
    gaps_in,
    judge,
    told_gaps,
)
from gpuform.providers.certifying.running import (
    Certifying,
    Run,
    Tester,
    Wanted,
    known_outputs,
    last_run,
    remove,
    with_gaps,
)

__all__ = [
    "DAY",
    "CertificationActions",
    "Certifying",
    "Job",
    "Machine",
    "Reach",
    "Refusal",
    "Run",
    "Tester",
    "Unreadable",
    "Wanted",
    "change_of",
    "covered",
    "due_notices",
    "gaps_in",
    "judge",
    "known_outputs",
    "last_run",
    "remove",
    "told_gaps",
    "with_gaps",
]
