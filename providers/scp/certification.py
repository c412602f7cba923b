"""Certify GPU nodes of SCP: test them by the Kubernetes or the Slurm cluster that they belong to.

SCP knows no scheduler: the stack declares one. A scheduler knows a node by its name, SCP by its id:
a node that was created again is another node. `providers.certifying` runs the tests.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuform.providers.certifying import (
    DAY_S,
    CertifiableNode,
    CertificationOperations,
    NodeAccess,
    NodeTester,
    build_certify_again_change,
    build_due_certification_notices,
    get_last_run_id,
    tests_repaired_nodes,
)
from gpuform.providers.context import ProviderContext, get_current_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.kubeconfig import load_declared_kubeconfig
from gpuform.providers.kubernetes.scheduler import NodeSoftware, list_node_software
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Timeouts
from gpuform.providers.readiness import CertificationName, EngineTester, find_engine
from gpuform.providers.records import BatchRecords
from gpuform.providers.scp.client import get_client
from gpuform.providers.scp.nodes.planning import is_terminating
from gpuform.providers.scp.nodes.repairs import VERDICT_OWNER
from gpuform.providers.slurm.batch import BatchQueue
from gpuform.providers.slurm.results import SlurmTester
from gpuform.providers.slurm.scheduler import create_command_runner
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.models import DEFAULT_NAMESPACE
from gpuform.schemas.policies.certification import CertificationOutputs
from gpuform.schemas.policies.drain import SlurmInputs
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import CertificationInputs
from gpuform.schemas.values import contains_unknown


class NodeCertificationOperations(CertificationOperations[CertificationInputs]):
    """Operations of a certification of GPU nodes."""

    inputs = CertificationInputs

    def _get_id(self, inputs: CertificationInputs) -> str:
        """Return the id `NAMESPACE/NAME` of a certification, with a default for the namespace."""
        return f"{inputs.namespace or DEFAULT_NAMESPACE}/{inputs.name}"

    def _parse_id(self, object_id: str) -> Mapping[str, Any]:
        """Parse an id of the form `NAMESPACE/NAME` into inputs.

        Raises:
            GpuformError: the id has another form.
        """
        namespace, _, name = object_id.partition("/")
        if not namespace or not name or "/" in name:
            raise GpuformError(
                f"{object_id!r} is not the id of a certification",
                hint="write it as NAMESPACE/NAME, such as default/fabric",
            )
        return {"namespace": namespace, "name": name}

    def _get_verdict_owner(self, inputs: CertificationInputs) -> str:  # noqa: ARG002 - the shape of the class
        """Return the one owner of all failed certifications of SCP, whatever the inputs."""
        return VERDICT_OWNER

    def _create_node_access(
        self, context: ProviderContext, object_id: str, inputs: CertificationInputs
    ) -> NodeAccess | None:
        """Return the functions to list the certified servers and to create a tester; never None.

        The list has no missing nodes and no nodes under deletion.

        Raises:
            GpuformError: the declared kubeconfig cannot be used; see `load_declared_kubeconfig`.
        """
        client = get_client(self._settings, inputs.region_id)
        kubeconfig = None
        if inputs.kubernetes is not None:
            kubeconfig = load_declared_kubeconfig(inputs.kubernetes, "kubernetes.")
        label = f"certification {inputs.name}"

        def list_machines() -> list[CertifiableNode]:
            certified_ids = {*inputs.node_ids}
            existing_nodes = [
                node
                for node in client.get_node_listing().read_all()
                if node.id in certified_ids and not is_terminating(node.state)
            ]
            software = (
                {}
                if kubeconfig is None
                else list_node_software(get_kubernetes_client(kubeconfig, label))
            )
            return [
                _build_machine(node, software.get(node.gpu_node_name)) for node in existing_nodes
            ]

        def create_tester() -> NodeTester:
            if inputs.uses_slurm:
                commands = create_command_runner(
                    inputs.slurm or SlurmInputs(), kubeconfig=kubeconfig, cluster=label
                )
                records = BatchRecords.from_intents(context.intents)
                jobs = BatchQueue(commands, folder=inputs.folder or "")
                return SlurmTester(jobs, records, object_id, inputs.name, inputs.categories, {})
            engine = find_engine(get_kubernetes_client(kubeconfig or "", label), f"of {label}")
            certification_place = CertificationName(
                inputs.namespace or DEFAULT_NAMESPACE, inputs.name
            )
            return EngineTester(
                engine,
                certification_place,
                inputs.categories,
                context.urn or object_id,
                get_last_run_id(context),
            )

        return NodeAccess(
            len({*inputs.node_ids}),
            list_machines,
            create_tester,
            lambda: context.get_platform_time(client.clock_ahead)[0],
        )


def _build_machine(node: wire.GpuNode, software: NodeSoftware | None) -> CertifiableNode:
    """Build the machine to test from a node; with `software` None the driver is empty."""
    return CertifiableNode(
        node=node.gpu_node_name,
        machine=node.id,
        # A scheduler knows a node by its name: an unknown node has no driver to compare.
        driver=software.driver if software is not None else "",
        image=node.image_id,
    )


def _find_planned_changes(
    old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> Iterable[FieldChange]:
    """Yield `certify again` if nodes are new, repaired or `gaps`, and changed `node_ids`.

    The change of known `node_ids` is for the state alone: `certify again` stands for the tests.
    """
    old_ids, declared_ids = old_outputs.get("node_ids") or [], declared.get("node_ids")
    is_unknown = contains_unknown(declared_ids)
    new_count = 0 if is_unknown else len({*(declared_ids or ())} - {*old_ids})
    repairs = get_current_context().planned_repairs
    if not is_unknown:  # a recreated node with a known id is one of the new nodes
        repairs = [repair for repair in repairs if repair.instance in (declared_ids or ())]
    recertification = build_certify_again_change(
        old_outputs, new_count, repairs, has_unknown_nodes=is_unknown
    )
    if recertification is not None:
        yield recertification
    if is_unknown:
        reason = "certify again after new nodes are added"
        yield FieldChange("node_ids", Action.UPDATE, old_ids, declared_ids, because=reason)
    elif {*(declared_ids or ())} != {*old_ids}:
        reason = "" if new_count else "no new nodes: nothing to test"
        yield FieldChange(
            "node_ids", Action.UPDATE, old_ids, declared_ids, because=reason, state_only=True
        )


class CertificationLifecycle(Lifecycle[CertificationInputs, CertificationOutputs]):
    """The lifecycle of a certification of GPU nodes of SCP."""

    platform = "scp"
    kind = "Certification"
    inputs = CertificationInputs
    outputs = CertificationOutputs
    timeouts = Timeouts(
        create=DAY_S, update=DAY_S, delete=600
    )  # `wait_minutes` is what ends waiting
    operations = NodeCertificationOperations
    id_example = "default/fabric"
    planned_fields = frozenset({"node_ids"})
    drift_outputs = frozenset({"gaps"})
    creates_no_object = True
    hooks = KindHooks(
        find_planned_changes=_find_planned_changes,
        tests_nodes_of=tests_repaired_nodes,
        find_kind_due_notices=lambda old_outputs, _declared: build_due_certification_notices(
            old_outputs
        ),
    )
