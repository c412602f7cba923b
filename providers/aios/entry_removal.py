"""Drain nodes before their entries leave a record of the registry, and uncordon them afterwards.

`cluster` and `gpu_node` call it with the scheduler that their inputs declare. The registry knows no
scheduler, and the hardware stays: only the network's work for the nodes ends, so that a node takes
jobs again as soon as its entry is gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining import (
    DrainOperation,
    DrainTarget,
    NodeEviction,
    Scheduler,
    Worker,
    undo_drain,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Drains
from gpuform.providers.slurm import create_declared_scheduler
from gpuform.schemas.policies.drain import RemovedNodes, ScheduledDrainInputs


class EntryRemoval:
    """Removes node entries of one resource, whose canonical inputs are `declared`.

    `label` names the resource in messages, as `cluster west`.
    """

    def __init__(
        self, context: ProviderContext, object_id: str, label: str, declared: Mapping[str, Any]
    ) -> None:
        self._context = context
        self._object_id = object_id
        self._label = label
        self._inputs = ScheduledDrainInputs.model_validate(declared.get("drain") or {})

    @contextmanager
    def drain_during(self, node_names: Sequence[str]) -> Iterator[None]:
        """Drain the nodes, run the block, which removes the entries, then uncordon the nodes.

        Without nodes or a declared scheduler nothing is drained. If the scheduler does not answer,
        a run with `--allow evict-jobs` gets a warning, and the block runs without a drain. Nodes
        that an earlier removal has left cordoned are uncordoned, too. After an error of the block
        nothing is uncordoned, except if the error proves that nothing was removed.

        Raises:
            GpuformError: before the block, if the nodes must not be removed; after it, if nodes may
                stay cordoned.
        """
        if node_names and self._inputs.has_scheduler:
            with self._create_drainer(node_names).drain_during(
                NodeEviction(dict.fromkeys(node_names, "deleted"))
            ):
                yield
        else:
            yield
        # The hardware stays: its next owner may give the nodes jobs.
        self.uncordon_leftover_nodes()

    def predict_removed_nodes(self, node_names: Sequence[str]) -> RemovedNodes | None:
        """Return the nodes whose entries an update would remove, with their jobs, for a plan.

        Returns None if `node_names` is empty or no scheduler is declared. This needs no warning:
        the entries of the registry are only records. Returns None, too, if the scheduler does not
        answer: `context.on_skipped_check` gets the reason.
        """
        if not node_names or not self._inputs.has_scheduler:
            return None
        return self._create_drainer(node_names).predict_removed_nodes(
            NodeEviction(dict.fromkeys(node_names, "deleted"))
        )

    def uncordon_leftover_nodes(self) -> None:
        """Uncordon the nodes of an earlier removal, and delete the record of its drain.

        Does nothing without such a record.

        Raises:
            GpuformError: nodes may stay cordoned.
        """
        drain = Drains.from_intents(self._context.intents).find(self._object_id)
        if drain is not None and not undo_drain(self._context, drain, self._create_scheduler):
            raise GpuformError(
                f"{', '.join(drain.cordoned)} may still be cordoned",
                hint="run the command again to uncordon",
            )

    def _create_drainer(self, node_names: Sequence[str]) -> DrainOperation:
        """Return the drain of these nodes by the declared scheduler; sends nothing."""
        target = DrainTarget(
            self._object_id, self._label, [Worker(node_name) for node_name in node_names]
        )
        return DrainOperation(self._context, target, self._create_scheduler, self._inputs)

    def _create_scheduler(self) -> Scheduler:
        """Return the declared scheduler. Raises GpuformError if none is declared or usable."""
        return create_declared_scheduler(self._inputs, self._label)
