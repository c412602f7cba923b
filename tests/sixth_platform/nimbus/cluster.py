"""Create, read, change and delete Nimbus's GPU clusters."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import NotFound, NotReady
from gpuform.providers.http import build_contradiction_error
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.records import Target
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.resource_facts import Expense, ResourceUsage
from gpuform.schemas.values import parse_count
from nimbus.client import get_client
from nimbus.schemas import Cluster, ClusterInputs, ClusterOutputs

ObservedCluster = Observed[ClusterOutputs]


class ClusterOperations:
    """The requests of a cluster's lifecycle; `Lifecycle` calls the methods."""

    def __init__(self, settings: Settings) -> None:
        self._client = get_client(settings)

    def create(self, context: ProviderContext, inputs: ClusterInputs) -> str:
        """Create the cluster exactly once, also if the answer is lost; return its id."""
        sent = inputs.dump_declared()

        def list_candidates() -> list[Candidate]:
            return [
                Candidate(
                    cluster.id,
                    is_being_deleted=cluster.status == "deleting",
                    region=cluster.region,
                    reported_properties=cluster.model_dump(include=set(sent)),
                )
                for cluster in self._client.list_clusters()
                if cluster.name == inputs.name
            ]

        def send_create() -> str:
            return self._client.create_cluster(inputs).id

        target = Target(
            "nimbus", "Cluster", context.redact_for_record(inputs.name), region=inputs.region
        )

        creation = Creation(
            target,
            list_candidates,
            exists=lambda cluster_id: self._client.listing.find_one(cluster_id) is not None,
            attempts=[Attempt(send_create, inputs.region, sent=sent)],
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(context, creation)

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> ObservedCluster:
        """Wait until the cluster is running, and return the cluster."""

        def probe() -> PollResult[ObservedCluster]:
            cluster = self._client.listing.find_one(object_id)
            if cluster is None:
                raise NotReady(f"cluster {object_id} no longer exists on the platform")
            return build_poll_result(cluster)

        label = f"cluster {inputs.name}"
        return wait_until_done(context, probe, label=label, interval=self._client.poll_schedule)

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedCluster | None:
        """Return the cluster as Nimbus reports it, or None if the cluster does not exist."""
        cluster = self._client.listing.find_one(object_id)
        return None if cluster is None else build_poll_result(cluster).value

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send the number of GPUs, the only field that changes in place."""
        self._client.update_cluster(object_id, {"gpu_count": inputs.gpu_count})

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Delete the cluster, and wait until the cluster no longer exists."""
        try:
            self._client.delete_cluster(object_id)
        except NotFound as error:
            cluster = self._client.listing.find_one(object_id)
            if cluster is not None and cluster.status != "deleting":
                raise build_contradiction_error(error, "it still exists") from None

        def probe() -> PollResult[object] | None:
            cluster = self._client.listing.find_one(object_id)
            return None if cluster is None else PollResult(None, cluster.status)

        label = f"cluster {known_inputs.get('name') or object_id}"
        wait_until_gone(context, probe, label=label, interval=self._client.poll_schedule)


def compute_resource_usage(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> ResourceUsage:
    """Return the GPUs of the cluster, which a price book can price."""
    region, gpu_type = str(inputs.get("region")), str(inputs.get("gpu_type"))
    count = parse_count(inputs.get("gpu_count"))
    gpus = Expense(what="gpus", platform="nimbus", amount=count, gpu_type=gpu_type, region=region)
    return ResourceUsage(
        region=region,
        gpu_types=(gpu_type,),
        running=outputs.get("status") == "running",
        expenses=(gpus,),
    )


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """The resource kind of Nimbus's GPU clusters."""

    platform = "nimbus"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=1800)
    operations = ClusterOperations
    hooks = KindHooks(
        count_gpus=lambda properties: parse_count(properties.get("gpu_count")),
        compute_resource_usage=compute_resource_usage,
    )


def build_poll_result(cluster: Cluster) -> PollResult[ObservedCluster]:
    """Return the inputs and outputs of a cluster, and whether the cluster is running or failed."""
    is_running = cluster.status == "running"
    failure = "Nimbus reports that it failed" if cluster.status == "failed" else None
    outputs = ClusterOutputs(
        ready=is_running,
        not_ready_reason=None if is_running else failure or cluster.status or "no status",
        status=cluster.status,
    )
    inputs = cluster.model_dump(include=set(ClusterInputs.model_fields))
    observed = Observed(inputs, outputs)
    return PollResult(observed, cluster.status, is_done=is_running, failure=failure)
