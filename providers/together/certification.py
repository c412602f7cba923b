"""A proof that the nodes of a cluster are fit, made and judged in the cluster itself."""

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
from gpuform.providers.kubernetes.client import KubernetesClient
from gpuform.providers.kubernetes.nodes import software_of_nodes
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Timeouts
from gpuform.providers.readiness import EngineTester, Place, engine_of
from gpuform.providers.records import BatchRecords
from gpuform.providers.slurm import BatchJobs, SlurmTester, slurm_commands
from gpuform.providers.together.claims import (
    KubernetesObjectId,
    build_missing_cluster_error,
    connect_to_kubernetes,
)
from gpuform.providers.together.client import client_for
from gpuform.providers.together.cluster_view import (
    GPUS_PER_NODE,
    decode_kube_config,
    list_standard_workers,
)
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.ids import DEFAULT_NAMESPACE
from gpuform.schemas.policies.certification import CertificationOutputs
from gpuform.schemas.resource_facts import Notice
from gpuform.schemas.slurm import SlurmInputs
from gpuform.schemas.together import wire
from gpuform.schemas.together.inputs import CertificationInputs
from gpuform.schemas.values import contains_unknown, parse_count


class ClusterCertificationActions(CertificationActions[CertificationInputs]):
    """The verbs of a certification of a cluster's nodes."""

    inputs = CertificationInputs

    def _id_of(self, inputs: CertificationInputs) -> str:
        return str(_place_of(inputs))

    def _inputs_of(self, id_: str) -> Mapping[str, Any]:
        place = KubernetesObjectId.parse(id_, "certification")
        named = {"namespace": place.namespace, "name": place.name}
        return {"cluster_id": place.cluster_id, **named}

    def _owner_of(self, inputs: CertificationInputs) -> str:
        return inputs.cluster_id

    def _number_of(self, inputs: CertificationInputs) -> int:
        return inputs.num_gpus // GPUS_PER_NODE

    def _reach(
        self, context: ProviderContext, id_: str, inputs: CertificationInputs
    ) -> Reach | None:
        client = client_for(self._settings)
        found = connect_to_kubernetes(client, inputs.cluster_id)
        if found is None:
            context.deleted_with_id = inputs.cluster_id
            return None
        cluster, kubernetes = found

        def machines() -> list[Machine]:
            now = connect_to_kubernetes(client, inputs.cluster_id)
            if now is None:
                raise build_missing_cluster_error(inputs.cluster_id)
            return _machines(*now)

        def tester() -> Tester:
            if inputs.uses_slurm:
                return _slurm_tester(context, id_, inputs, cluster)
            engine = engine_of(kubernetes, cluster.cluster_name)
            place = _place_of(inputs)
            where = Place(place.namespace, place.name)
            return EngineTester(
                engine, where, inputs.categories, context.urn or id_, last_run(context)
            )

        def now() -> float:
            return context.get_platform_time(client.clock_ahead)[0]

        return Reach(machines, tester, now)


class CertificationLifecycle(Lifecycle[CertificationInputs, CertificationOutputs]):
    """A certification of the nodes of a cluster of Together."""

    platform = "together"
    kind = "Certification"
    inputs = CertificationInputs
    outputs = CertificationOutputs
    timeouts = Timeouts(create=DAY, update=DAY, delete=600)  # `wait_minutes` is what ends waiting
    operations = ClusterCertificationActions
    id_example = "0f11e35c-a155-4e89-9e21-3f8ed2f99a2d/default/fabric"
    planned_fields = frozenset({"num_gpus"})
    drift_outputs = frozenset({"gaps"})
    creates_no_object = True

    @classmethod
    def find_planned_changes(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[FieldChange]:
        """`certify again` where nodes are not proven any more, or more of them come."""
        before, after = parse_count(old_outputs.get("num_gpus")), declared.get("num_gpus")
        now = parse_count(after)
        coming = (now - before) // GPUS_PER_NODE if now is not None and before is not None else 0
        again = change_of(old_outputs, coming)
        if again is not None:
            yield again
        if contains_unknown(after):
            because = "certify again if there are new nodes"
            yield FieldChange("num_gpus", Action.UPDATE, before, after, because=because)
        elif now != before:
            because = "" if coming > 0 else "fewer nodes: nothing to test"
            recorded = FieldChange(
                "num_gpus", Action.UPDATE, before, now, because=because, state_only=True
            )
            yield recorded

    @classmethod
    def find_due_notices(
        cls,
        old_outputs: Mapping[str, Any],
        declared: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Iterable[Notice]:
        """Which nodes are not proven any more."""
        return due_notices(old_outputs)


def _machines(cluster: wire.Cluster, kubernetes: KubernetesClient) -> list[Machine]:
    """The standard workers by the platform, with the driver and system that Kubernetes tells."""
    software = software_of_nodes(kubernetes)
    told = {
        name: software.get(name) for name in (w.host_name for w in list_standard_workers(cluster))
    }
    return [
        Machine(
            node=each.host_name,
            machine=each.instance_id or each.node_id,
            driver=(found.driver if (found := told[each.host_name]) else "")
            or cluster.nvidia_driver_version,
            image=found.image if found else "",
        )
        for each in list_standard_workers(cluster)
    ]


def _place_of(want: CertificationInputs) -> KubernetesObjectId:
    return KubernetesObjectId(want.cluster_id, want.namespace or DEFAULT_NAMESPACE, want.name)


def _slurm_tester(
    call: ProviderContext, id_: str, want: CertificationInputs, cluster: wire.Cluster
) -> SlurmTester:
    if cluster.cluster_type != "SLURM":
        raise GpuformError(
            f"cluster {cluster.cluster_name} has no Slurm, which a category with `job` needs: its "
            f"type is {cluster.cluster_type or 'not told'}",
            hint="leave `job` out: the Cluster Readiness Engine tests clusters of Kubernetes",
        )
    kube_config = decode_kube_config(cluster.kube_config.get_secret_value())
    commands = slurm_commands(
        want.slurm or SlurmInputs(), kubeconfig=kube_config, cluster=cluster.cluster_name
    )
    workers = list_standard_workers(cluster)
    return SlurmTester(
        BatchJobs(commands, folder=want.folder or ""),
        BatchRecords.beside(call.intents),
        id_,
        want.name,
        want.categories,
        {each.host_name: each.slurm_worker_hostname or each.host_name for each in workers},
    )
