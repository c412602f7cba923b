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
from gpuform.providers.scp.nodes import OWNER, is_leaving
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

    def _id_of(self, want: CertificationInputs) -> str:
        return f"{want.namespace or DEFAULT_NAMESPACE}/{want.name}"

    def _inputs_of(self, id_: str) -> Mapping[str, Any]:
        namespace, _, name = id_.partition("/")
        if not namespace or not name or "/" in name:
            raise GpuformError(
                f"{id_!r} is not the id of a certification",
                hint="write it as NAMESPACE/NAME, such as default/fabric",
            )
        return {"namespace": namespace, "name": name}

    def _owner_of(self, want: CertificationInputs) -> str:  # noqa: ARG002 - the shape of the class
        return OWNER

    def _number_of(self, want: CertificationInputs) -> int:
        return len({*want.node_ids})

    def _reach(self, call: ProviderContext, id_: str, want: CertificationInputs) -> Reach | None:
        client = client_for(self._settings, want.region_id)
        text = None
        if want.kubernetes is not None:
            text = declared_kubeconfig(want.kubernetes, "kubernetes.")
        what = f"certification {want.name}"

        def machines() -> list[Machine]:
            wanted = {*want.node_ids}
            there = [
                each
                for each in client.get_node_listing().all()
                if each.id in wanted and not is_leaving(each.state)
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
            if want.with_slurm:
                commands = slurm_commands(
                    want.slurm or SlurmInputs(), kubeconfig=text, cluster=what
                )
                records = BatchRecords.beside(call.intents)
                jobs = BatchJobs(commands, folder=want.folder or "")
                return SlurmTester(jobs, records, id_, want.name, want.categories, {})
            engine = engine_of(client_by(text or "", what), f"of {what}")
            place = Place(want.namespace or DEFAULT_NAMESPACE, want.name)
            return EngineTester(engine, place, want.categories, call.urn or id_, last_run(call))

        return Reach(machines, tester, lambda: call.platform_time(client.clock_ahead)[0])


class CertificationLifecycle(Lifecycle[CertificationInputs, CertificationOutputs]):
    """A certification of GPU nodes of SCP."""

    platform = "scp"
    kind = "Certification"
    inputs = CertificationInputs
    outputs = CertificationOutputs
    timeouts = Timeouts(create=DAY, update=DAY, delete=600)  # `wait_minutes` is what ends waiting
    operations = NodeCertificationActions
    id_example = "default/fabric"
    planned = frozenset({"node_ids"})
    watched = frozenset({"gaps"})
    makes_nothing = True

    @classmethod
    def planned_changes(
        cls, old: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[FieldChange]:
        """`certify again` where nodes are not proven any more, or others come."""
        before, after = old.get("node_ids") or [], declared.get("node_ids")
        is_open = contains_unknown(after)
        coming = 0 if is_open else len({*(after or ())} - {*before})
        again = change_of(old, coming)
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
    def due(cls, old: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterable[Notice]:  # noqa: ARG003 - the shape of Traits
        """Which nodes are not proven any more."""
        return due_notices(old)
