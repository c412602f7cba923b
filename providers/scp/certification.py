"""A proof that GPU nodes of SCP are fit, made in the Kubernetes or the Slurm that they are in.

SCP knows no scheduler: the stack names it. A node is known there by its name, and by its id on SCP:
a node that was made anew is another one.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuform.providers.certifying import (
    DAY,
    CertificationActions,
    Machine,
    Reach,
    Tester,
    change_of,
    due_notices,
    last_run,
)
from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.kubeconfig import declared_kubeconfig
from gpuform.providers.kubernetes.nodes import software_of_nodes
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Timeouts
from gpuform.providers.readiness import EngineTester, Place, engine_of
from gpuform.providers.records import BatchRecords
from gpuform.providers.scp.client import client_for
from gpuform.providers.scp.nodes import VERDICT_OWNER, is_terminating
from gpuform.providers.slurm import BatchJobs, SlurmTester, slurm_commands
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.ids import DEFAULT_NAMESPACE
from gpuform.schemas.policies.certification import CertificationOutputs
from gpuform.schemas.resource_facts import Notice
from gpuform.schemas.scp.inputs import CertificationInputs
from gpuform.schemas.slurm import SlurmInputs
from gpuform.schemas.values import contains_unknown


class NodeCertificationActions(CertificationActions[CertificationInputs]):
    """The verbs of a certification of GPU nodes."""

    inputs = CertificationInputs

    def _id_of(self, inputs: CertificationInputs) -> str:
        return f"{inputs.namespace or DEFAULT_NAMESPACE}/{inputs.name}"

    def _inputs_of(self, id_: str) -> Mapping[str, Any]:
        namespace, _, name = id_.partition("/")
        if not namespace or not name or "/" in name:
            raise GpuformError(
                f"{id_!r} is not the id of a certification",
                hint="write it as NAMESPACE/NAME, such as default/fabric",
            )
        return {"namespace": namespace, "name": name}

    def _owner_of(self, inputs: CertificationInputs) -> str:  # noqa: ARG002 - the shape of the class
        return VERDICT_OWNER

    def _number_of(self, inputs: CertificationInputs) -> int:
        return len({*inputs.node_ids})

    def _reach(
        self, context: ProviderContext, id_: str, inputs: CertificationInputs
    ) -> Reach | None:
        client = client_for(self._settings, inputs.region_id)
        text = None
        if inputs.kubernetes is not None:
            text = declared_kubeconfig(inputs.kubernetes, "kubernetes.")
        what = f"certification {inputs.name}"

        def machines() -> list[Machine]:
            wanted = {*inputs.node_ids}
            there = [
                each
                for each in client.get_node_listing().all()
                if each.id in wanted and not is_terminating(each.state)
            ]
            software = {} if text is None else software_of_nodes(client_by(text, what))
            told = ((each, software.get(each.gpu_node_name)) for each in there)
            return [
                Machine(
                    node=each.gpu_node_name,
                    machine=each.id,
                    driver=found.driver if found is not None else "",
                    image=each.image_id,
                )
                for each, found in told
            ]

        def tester() -> Tester:
            if inputs.with_slurm:
                commands = slurm_commands(
                    inputs.slurm or SlurmInputs(), kubeconfig=text, cluster=what
                )
                records = BatchRecords.beside(context.intents)
                jobs = BatchJobs(commands, folder=inputs.folder or "")
                return SlurmTester(jobs, records, id_, inputs.name, inputs.categories, {})
            engine = engine_of(client_by(text or "", what), f"of {what}")
            place = Place(inputs.namespace or DEFAULT_NAMESPACE, inputs.name)
            return EngineTester(
                engine, place, inputs.categories, context.urn or id_, last_run(context)
            )

        return Reach(machines, tester, lambda: context.get_platform_time(client.clock_ahead)[0])


class CertificationLifecycle(Lifecycle[CertificationInputs, CertificationOutputs]):
    """A certification of GPU nodes of SCP."""

    platform = "scp"
    kind = "Certification"
    inputs = CertificationInputs
    outputs = CertificationOutputs
    timeouts = Timeouts(create=DAY, update=DAY, delete=600)  # `wait_minutes` is what ends waiting
    operations = NodeCertificationActions
    id_example = "default/fabric"
    planned_fields = frozenset({"node_ids"})
    drift_outputs = frozenset({"gaps"})
    creates_no_object = True

    @classmethod
    def find_planned_changes(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[FieldChange]:
        """`certify again` where nodes are not proven any more, or others come."""
        before, after = old_outputs.get("node_ids") or [], declared.get("node_ids")
        is_open = contains_unknown(after)
        coming = 0 if is_open else len({*(after or ())} - {*before})
        again = change_of(old_outputs, coming)
        if again is not None:
            yield again
        if is_open:
            because = "certify again if there are new nodes"
            yield FieldChange("node_ids", Action.UPDATE, before, after, because=because)
        elif {*(after or ())} != {*before}:
            because = "" if coming else "fewer nodes: nothing to test"
            yield FieldChange(
                "node_ids", Action.UPDATE, before, after, because=because, state_only=True
            )

    @classmethod
    def find_due_notices(
        cls,
        old_outputs: Mapping[str, Any],
        declared: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Iterable[Notice]:
        """Which nodes are not proven any more."""
        return due_notices(old_outputs)
