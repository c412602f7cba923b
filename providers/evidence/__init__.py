"""Decide whether observations prove enough for a decision that cannot be taken back.

Everything that deletes, stops, forgets, adopts or lets pass states its observations here first.
`decisions` lists those decisions, `observations` compares them with what was observed.
"""

from gpuform.providers.evidence.decisions import DECISIONS, Decision, Effect
from gpuform.providers.evidence.observations import (
    NotEnoughEvidence,
    Observation,
    find_gaps,
    require_evidence,
)

__all__ = [
    "DECISIONS",
    "Decision",
    "Effect",
    "NotEnoughEvidence",
    "Observation",
    "find_gaps",
    "require_evidence",
]
