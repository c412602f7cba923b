"""Certify the nodes of a cluster of Together by tests that run in the cluster itself.

`gpuform.providers.lifecycle` calls this module through `CertificationLifecycle`, whose dotted path
is in state files. `gpuform.providers.certifying` decides what to test; tests run as jobs of the
Cluster Readiness Engine or of Slurm.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

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
from gpuform.providers.kubernetes.client import KubernetesClient
from gpuform.providers.kubernetes.scheduler import list_node_software
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Timeouts
from gpuform.providers.readiness import CertificationName, EngineTester, find_engine
from gpuform.providers.records import BatchRecords
from gpuform.providers.slurm.batch import BatchQueue
from gpuform.providers.slurm.results import SlurmTester
from gpuform.providers.slurm.scheduler import create_command_runner
from gpuform.providers.together.claims import (
    KubernetesObjectId,
    build_missing_cluster_error,
    connect_to_kubernetes,
)
from gpuform.providers.together.client import get_client
from gpuform.providers.together.cluster_view import (
    count_nodes,
    decode_kube_config,
    list_standard_workers,
)
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.models import DEFAULT_NAMESPACE
from gpuform.schemas.policies.certification import CertificationOutputs
from gpuform.schemas.policies.drain import SlurmInputs
from gpuform.schemas.together import wire
from gpuform.schemas.together.inputs import CertificationInputs
from gpuform.schemas.values import contains_unknown, parse_count

_NODE_GPUS: Final = (4, 8)
"""How many GPUs a node of Together may have."""


class ClusterCertificationOperations(CertificationOperations[CertificationInputs]):
    """The operations of a certification of a cluster's nodes."""

    inputs = CertificationInputs

    def _get_id(self, inputs: CertificationInputs) -> str:
        """Return the id of a certification: `<cluster id>/<namespace>/<name>`."""
        return str(_build_id(inputs))

    def _parse_id(self, object_id: str) -> Mapping[str, Any]:
        """Return the inputs `cluster_id`, `namespace` and `name` from the id of a certification.

        Raises:
            GpuformError: the id does not have three parts.
        """
        object_key = KubernetesObjectId.parse(object_id, "certification")
        name_inputs = {"namespace": object_key.namespace, "name": object_key.name}
        return {"cluster_id": object_key.cluster_id, **name_inputs}

    def _get_verdict_owner(self, inputs: CertificationInputs) -> str:
        """Return the cluster id, under which failed certifications are recorded."""
        return inputs.cluster_id

    def _create_node_access(
        self, context: ProviderContext, object_id: str, inputs: CertificationInputs
    ) -> NodeAccess | None:
        """Return the functions to list the cluster's workers and to create a tester for the nodes.

        None, with the cluster in `context.progress.deleted_with_id`, if the cluster is deleted.

        Raises:
            NotReady: the cluster has no Kubernetes API yet.
        """
        client = get_client(self._settings)
        connection = connect_to_kubernetes(client, inputs.cluster_id)
        if connection is None:
            context.progress.deleted_with_id = inputs.cluster_id
            return None
        cluster, kubernetes = connection

        def list_machines() -> list[CertifiableNode]:
            current_connection = connect_to_kubernetes(client, inputs.cluster_id)
            if current_connection is None:
                raise build_missing_cluster_error(inputs.cluster_id)
            return _list_machines(*current_connection)

        def create_tester() -> NodeTester:
            if inputs.uses_slurm:
                return _create_slurm_tester(context, object_id, inputs, cluster)
            engine = find_engine(kubernetes, cluster.cluster_name)
            object_key = _build_id(inputs)
            where = CertificationName(object_key.namespace, object_key.name)
            return EngineTester(
                engine, where, inputs.categories, context.urn or object_id, get_last_run_id(context)
            )

        def now() -> float:
            return context.get_platform_time(client.clock_ahead)[0]

        declared_count = count_nodes(cluster, inputs.num_gpus)
        return NodeAccess(declared_count, list_machines, create_tester, now)


def _find_planned_changes(
    old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> Iterable[FieldChange]:
    """Yield `certify again` if nodes are added, repaired or unproven, and a changed `num_gpus`.

    The change of a known `num_gpus` is for the state alone: `certify again` stands for the
    tests. An UNKNOWN one gives a change, too.
    """
    before, after = parse_count(old_outputs.get("num_gpus")), declared.get("num_gpus")
    num_gpus = parse_count(after)
    new_nodes = (
        (num_gpus - before) // _estimate_gpus_per_node(old_outputs, before)
        if num_gpus is not None and before is not None
        else 0
    )
    certify_again = build_certify_again_change(
        old_outputs,
        new_nodes,
        get_current_context().planned_repairs,
        has_unknown_nodes=contains_unknown(after),
    )
    if certify_again is not None:
        yield certify_again
    if contains_unknown(after):
        reason = "certify again after new nodes are added"
        yield FieldChange("num_gpus", Action.UPDATE, before, after, because=reason)
    elif num_gpus != before:
        # fewer nodes need no test: only the recorded number changes
        reason = "" if new_nodes > 0 else "no new nodes: nothing to test"
        recorded = FieldChange(
            "num_gpus", Action.UPDATE, before, num_gpus, because=reason, state_only=True
        )
        yield recorded


class CertificationLifecycle(Lifecycle[CertificationInputs, CertificationOutputs]):
    """The resource kind of certifications of nodes of Together's clusters."""

    platform = "together"
    kind = "Certification"
    inputs = CertificationInputs
    outputs = CertificationOutputs
    timeouts = Timeouts(
        create=DAY_S, update=DAY_S, delete=600
    )  # `wait_minutes` is what ends waiting
    operations = ClusterCertificationOperations
    id_example = "0f11e35c-a155-4e89-9e21-3f8ed2f99a2d/default/fabric"
    planned_fields = frozenset({"num_gpus"})
    drift_outputs = frozenset({"gaps"})
    creates_no_object = True
    hooks = KindHooks(
        find_planned_changes=_find_planned_changes,
        tests_nodes_of=tests_repaired_nodes,
        find_kind_due_notices=lambda old_outputs, _declared: build_due_certification_notices(
            old_outputs
        ),
    )


def _list_machines(cluster: wire.Cluster, kubernetes: KubernetesClient) -> list[CertifiableNode]:
    """Return the standard workers with driver and system image, as Kubernetes reports both.

    A worker that Kubernetes does not know has the cluster's driver version and no image.
    """
    software = list_node_software(kubernetes)
    machines = []
    for worker in list_standard_workers(cluster):
        node_software = software.get(worker.host_name)
        # a node that Kubernetes does not know yet is taken to have the cluster's driver
        driver = (node_software.driver if node_software else "") or cluster.nvidia_driver_version
        machines.append(
            CertifiableNode(
                node=worker.host_name,
                machine=worker.instance_id or worker.node_id,
                driver=driver,
                image=node_software.image if node_software else "",
            )
        )
    return machines


def _build_id(inputs: CertificationInputs) -> KubernetesObjectId:
    """Return the id of a certification, with the default namespace unless declared."""
    return KubernetesObjectId(inputs.cluster_id, inputs.namespace or DEFAULT_NAMESPACE, inputs.name)


def _create_slurm_tester(
    context: ProviderContext, object_id: str, inputs: CertificationInputs, cluster: wire.Cluster
) -> SlurmTester:
    """Create the tester of the cluster's own Slurm; nothing is sent yet.

    Raises:
        GpuformError: the cluster is not of type SLURM, its kubeconfig is missing or refused, this
            run may not use the declared Slurm, or `folder` is no absolute path that sbatch takes
            literally.
    """
    if cluster.cluster_type != "SLURM":
        raise GpuformError(
            f"cluster {cluster.cluster_name} has no Slurm, which a category with `job` needs: "
            f"its type is {cluster.cluster_type or 'not reported'}",
            hint="remove `job`: the Cluster Readiness Engine tests clusters of Kubernetes",
        )
    kube_config = decode_kube_config(cluster.kube_config.get_secret_value())
    commands = create_command_runner(
        inputs.slurm or SlurmInputs(), kubeconfig=kube_config, cluster=cluster.cluster_name
    )
    workers = list_standard_workers(cluster)
    return SlurmTester(
        BatchQueue(commands, folder=inputs.folder or ""),
        BatchRecords.from_intents(context.intents),
        object_id,
        inputs.name,
        inputs.categories,
        {worker.host_name: worker.slurm_worker_hostname or worker.host_name for worker in workers},
    )


def _estimate_gpus_per_node(outputs: Mapping[str, Any], num_gpus: int) -> int:
    """Return how many GPUs a node has, by the nodes of a certification of `num_gpus` GPUs.

    8 if the certification knows no node, or if the GPUs are not spread evenly over its nodes.
    """
    node_names = {
        entry.get("node")
        for field in ("evidence", "gaps")
        for entry in outputs.get(field) or ()
        if isinstance(entry, Mapping)
    }
    gpus_per_node, remaining_gpus = divmod(num_gpus, len(node_names) or 1)
    is_plausible = bool(node_names) and not remaining_gpus and gpus_per_node in _NODE_GPUS
    return gpus_per_node if is_plausible else max(_NODE_GPUS)
