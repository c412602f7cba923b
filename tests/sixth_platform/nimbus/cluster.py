"""The lifecycle of a Nimbus cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import NotFound, NotReady
from gpuform.providers.http import build_contradiction_error
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.records import Target
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.resource_facts import Expense, ResourceUsage
from nimbus.client import get_client
from nimbus.schemas import Cluster, ClusterInputs, ClusterOutputs

Seen = Observed[ClusterOutputs]


class ClusterActions:
    """The verbs of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._client = get_client(settings)

    def find_planning_problems(
        self, call: ProviderContext, values: Mapping[str, Any]
    ) -> Sequence[Problem]:
        """Nimbus has nothing to say beforehand."""
        return ()

    def create(self, call: ProviderContext, inputs: ClusterInputs) -> str:
        """Exactly once, whatever becomes of the answer."""
        sent = inputs.dump_declared()

        def candidates() -> list[Candidate]:
            return [
                Candidate(
                    each.id,
                    leaving=each.status == "deleting",
                    region=each.region,
                    shown=each.model_dump(include=set(sent)),
                )
                for each in self._client.clusters()
                if each.name == inputs.name
            ]

        creation = Creation(
            Target("nimbus", "Cluster", call.redact_for_record(inputs.name), region=inputs.region),
            candidates,
            exists=lambda id_: self._find(id_) is not None,
            attempts=[Attempt(lambda: self._client.create(inputs).id, inputs.region, sent=sent)],
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(call, creation)

    def wait_until_ready(
        self, call: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> Seen:
        """Running."""

        def probe() -> PollResult[Seen]:
            cluster = self._find(object_id)
            if cluster is None:
                raise NotReady(f"cluster {object_id} is gone from the platform")
            return look_at(cluster)

        what = f"cluster {inputs.name}"
        return wait_until_done(call, probe, label=what, interval=self._client.rhythm)

    def read(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Seen | None:
        """Everything that is declared is returned."""
        cluster = self._find(object_id)
        return None if cluster is None else look_at(cluster).value

    def update(
        self,
        call: ProviderContext,
        object_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Another number of GPUs."""
        self._client.update(object_id, {"gpu_count": inputs.gpu_count})

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Waits until it is gone."""
        try:
            self._client.delete(object_id)
        except NotFound as error:
            left = self._find(object_id)
            if left is not None and left.status != "deleting":
                raise build_contradiction_error(error, "it is still there") from None

        def probe() -> PollResult[object] | None:
            cluster = self._find(object_id)
            return None if cluster is None else PollResult(None, cluster.status)

        what = f"cluster {known_inputs.get('name') or object_id}"
        wait_until_gone(call, probe, label=what, interval=self._client.rhythm)

    def _find(self, id_: str) -> Cluster | None:
        try:
            return self._client.shared.read_one(id_)
        except NotFound:
            return None


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """A GPU cluster of Nimbus."""

    platform = "nimbus"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=1800)
    operations = ClusterActions
    gpus_field = "gpu_count"

    @classmethod
    def compute_resource_usage(
        cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> ResourceUsage:
        """GPUs, which a price book can price."""
        region, gpu_type = str(inputs.get("region")), str(inputs.get("gpu_type"))
        count = cls.count_gpus(inputs)
        gpus = Expense(
            what="gpus", platform="nimbus", amount=count, gpu_type=gpu_type, region=region
        )
        return ResourceUsage(
            region=region,
            gpu_types=(gpu_type,),
            running=outputs.get("status") == "running",
            expenses=(gpus,),
        )


def look_at(cluster: Cluster) -> PollResult[Seen]:
    """A cluster as seen by somebody who waits for it."""
    done = cluster.status == "running"
    failed = "Nimbus says that it failed" if cluster.status == "failed" else None
    outputs = ClusterOutputs(
        ready=done,
        not_ready_reason=None if done else failed or cluster.status or "no status",
        status=cluster.status,
    )
    inputs = cluster.model_dump(include=set(ClusterInputs.model_fields))
    return PollResult(Observed(inputs, outputs), cluster.status, is_done=done, failure=failed)
