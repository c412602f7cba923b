"""Golden texts, and hand-made plans."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange

GOLDEN = Path(__file__).parent / "golden"
CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"
VOLUME = "pulumi-python:dynamic/gpuform.together:SharedVolume"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Return a function that compares a text with the file of that name.

    GPUFORM_UPDATE_GOLDEN=1 writes the file instead.
    """

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("GPUFORM_UPDATE_GOLDEN") == "1":
            path.write_text(text + "\n", encoding="utf-8")
        assert text + "\n" == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def resource() -> Callable[..., ResourceChange]:
    def make(
        name: str,
        action: PlanAction,
        reason: PlanReason,
        *changes: PropertyChange,
        type_: str = CLUSTER,
        **facts: Any,
    ) -> ResourceChange:
        urn = f"urn:pulumi:dev::demo::{type_}::{name}"
        counts: dict[str, Any] = {"gpus_added": 0, "gpus_removed": 0, **facts}
        return ResourceChange(
            urn=urn,
            type=type_,
            name=name,
            action=action,
            reason=reason,
            changes=changes,
            **counts,
        )

    return make


@pytest.fixture
def change() -> Callable[..., PropertyChange]:
    def make(path: str, before: Any = None, after: Any = None, **facts: Any) -> PropertyChange:
        action = facts.pop("action", None)
        if action is None:
            action = Action.UPDATE if before is not None else Action.ADD
        return PropertyChange(path=path, action=action, before=before, after=after, **facts)

    return make
