"""Build rehearsals by hand, for tests of what is made of them."""

from typing import Any

from gpuform.schemas.rehearsal import Hazard, HazardKind, HazardOutcome, Rehearsal

TRAIN = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:Cluster::train"


def build_outcome(kind: HazardKind, description: str = "", **losses: Any) -> HazardOutcome:
    """Return an outcome without a loss, except for `losses`."""
    hazard = Hazard(kind=kind, urn=TRAIN, description=description or f"{kind} for cluster train")
    return HazardOutcome(hazard=hazard, **{"ending": "succeeded", **losses})


def build_rehearsal(*outcomes: HazardOutcome, **facts: Any) -> Rehearsal:
    """Return a rehearsal with these outcomes, beside a run in which nothing goes wrong."""
    usual = build_outcome(HazardKind.NONE, "nothing goes wrong")
    if not any(outcome.hazard.kind is HazardKind.NONE for outcome in outcomes):
        outcomes = (*outcomes, usual)
    made = {"project": "demo", "stack": "dev", "changes": 1, "actions": {TRAIN: "update"}}
    return Rehearsal(outcomes=outcomes, **{**made, **facts})
