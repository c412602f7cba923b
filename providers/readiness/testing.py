"""The Cluster Readiness Engine as the tester of one certification."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.providers.certifying import Job, Run
from gpuform.providers.errors import GpuformError
from gpuform.providers.readiness.engine import OWNER, Place, ReadinessEngine, manifest
from gpuform.providers.readiness.results import jobs_of
from gpuform.schemas.certification import CategoryInputs
from gpuform.schemas.readiness_wire import Certification

PURPOSE: Final = "gpuform.dev/purpose"
"""The annotation that says which nodes and tests a certification is for."""


@dataclass(frozen=True)
class EngineTester:
    """A `gpuform.providers.certifying.Tester`.

    `owner` is the URN of the resource, which may have had another one when `last` was begun.
    """

    engine: ReadinessEngine
    place: Place
    categories: Sequence[CategoryInputs]
    owner: str
    last: str = ""

    @property
    def by(self) -> str:
        """The engine, with the API that it has."""
        return self.engine.api

    def find(self) -> Run | None:
        """The certification of that name. Raises GpuformError for one that somebody else made."""
        found = self.engine.find(self.place)
        if found is None:
            return None
        annotations = found.metadata.annotations
        if annotations.get(OWNER) != self.owner and found.metadata.uid != self.last:
            raise GpuformError(
                f"there is a certification {self.place} already, which this resource did not make",
                hint="declare another name; gpuform takes and removes none that others have made",
            )
        purpose = annotations.get(PURPOSE, "")
        return _run(found, purpose)

    def begin(self, nodes: Sequence[str], purpose: str) -> None:
        """Makes the certification of these nodes."""
        body = manifest(self.engine.api, self.place, self.categories, nodes, self.owner)
        body["metadata"]["annotations"][PURPOSE] = purpose
        self.engine.create(body)

    def resume(self, run: Run) -> None:
        """Nothing: a certification is made by one request."""

    def jobs(self, run: Run) -> Sequence[Job]:
        """What its workflows say of their groups."""
        found = self.engine.find(self.place)
        if found is None or found.metadata.uid != run.id:
            raise GpuformError(f"certification {self.place} was removed before it was read")
        return jobs_of(self.engine, found, self.categories)

    def remove(self, run: Run) -> None:
        """Deletes that very certification."""
        self.engine.delete(self.place, run.id)


def _run(found: Certification, purpose: str) -> Run:
    failed = found.condition("Failed") or found.condition("ValidationFailed")
    ended = found.condition("Failed") or found.condition("Succeeded")
    leaving = found.metadata.deleted_at is not None
    problem = ""
    if failed is not None:
        told = " ".join(failed.message.split()) or failed.reason or failed.type
        problem = f"certification {found.metadata.name}: {told}"
    return Run(
        id=found.metadata.uid,
        purpose="" if leaving else purpose,
        phase="being deleted" if leaving else _phase(found),
        ended=ended is not None,
        ended_at=ended.since if ended is not None else "",
        problem=problem,
    )


def _phase(found: Certification) -> str:
    """`InProgress: communication/nccl-all-reduce`."""
    going = [each for each in found.status.categories if each.status == "InProgress"]
    done = sum(each.status in {"Succeeded", "Failed"} for each in found.status.categories)
    names = ", ".join(f"{each.domain}/{each.variant}" for each in going)
    total = len(found.status.categories)
    return f"InProgress: {names} ({done} of {total} done)" if names else "InProgress"
