"""The lifecycle of a Nimbus cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.actions import Observed, Settings, Timeouts
from gpuform.providers.calls import Call, Look, wait_until, wait_until_gone
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import NotFound, NotReady
from gpuform.providers.http import contradicted
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.records import Target
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.resource_facts import Expense, Footprint
from nimbus.client import client_for
from nimbus.schemas import Cluster, ClusterInputs, ClusterOutputs

Seen = Observed[ClusterOutputs]


class ClusterActions:
    """The verbs of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(self, call: Call, values: Mapping[str, Any]) -> Sequence[Problem]:
        """Nimbus has nothing to say beforehand."""
        return ()

    def create(self, call: Call, want: ClusterInputs) -> str:
        """Exactly once, whatever becomes of the answer."""
        sent = want.declared()

        def candidates() -> list[Candidate]:
            return [
                Candidate(
                    each.id,
                    leaving=each.status == "deleting",
                    region=each.region,
                    shown=each.model_dump(include=set(sent)),
                )
                for each in self._client.clusters()
                if each.name == want.name
            ]

        creation = Creation(
            Target("nimbus", "Cluster", call.kept(want.name), region=want.region),
            candidates,
            exists=lambda id_: self._find(id_) is not None,
            attempts=[Attempt(lambda: self._client.create(want).id, want.region, sent=sent)],
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(call, creation)

    def settle(self, call: Call, id_: str, want: ClusterInputs) -> Seen:
        """Running."""

        def probe() -> Look[Seen]:
            cluster = self._find(id_)
            if cluster is None:
                raise NotReady(f"cluster {id_} is gone from the platform")
            return look_at(cluster)

        what = f"cluster {want.name}"
        return wait_until(call, probe, what=what, interval=self._client.rhythm)

    def read(self, call: Call, id_: str, known: Mapping[str, Any]) -> Seen | None:
        """Everything that is declared is returned."""
        cluster = self._find(id_)
        return None if cluster is None else look_at(cluster).value

    def update(
        self,
        call: Call,
        id_: str,
        want: ClusterInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Another number of GPUs."""
        self._client.update(id_, {"gpu_count": want.gpu_count})

    def delete(self, call: Call, id_: str, known: Mapping[str, Any]) -> None:
        """Waits until it is gone."""
        try:
            self._client.delete(id_)
        except NotFound as error:
            left = self._find(id_)
            if left is not None and left.status != "deleting":
                raise contradicted(error, "it is still there") from None

        def probe() -> Look[object] | None:
            cluster = self._find(id_)
            return None if cluster is None else Look(None, cluster.status)

        what = f"cluster {known.get('name') or id_}"
        wait_until_gone(call, probe, what=what, interval=self._client.rhythm)

    def _find(self, id_: str) -> Cluster | None:
        try:
            return self._client.shared.one(id_)
        except NotFound:
            return None


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """A GPU cluster of Nimbus."""

    platform = "nimbus"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=1800)
    actions = ClusterActions
    gpus_field = "gpu_count"

    @classmethod
    def footprint(cls, values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
        """GPUs, which a price book can price."""
        region, gpu_type = str(values.get("region")), str(values.get("gpu_type"))
        count = cls.gpus(values)
        gpus = Expense(
            what="gpus", platform="nimbus", amount=count, gpu_type=gpu_type, region=region
        )
        return Footprint(
            region=region,
            gpu_types=(gpu_type,),
            running=seen.get("status") == "running",
            expenses=(gpus,),
        )


def look_at(cluster: Cluster) -> Look[Seen]:
    """A cluster as seen by somebody who waits for it."""
    done = cluster.status == "running"
    failed = "Nimbus says that it failed" if cluster.status == "failed" else None
    outputs = ClusterOutputs(
        ready=done,
        not_ready_reason=None if done else failed or cluster.status or "no status",
        status=cluster.status,
    )
    inputs = cluster.model_dump(include=set(ClusterInputs.model_fields))
    return Look(Observed(inputs, outputs), cluster.status, done=done, failed=failed)
