"""A proof that the nodes of a cluster are fit, made and judged in the cluster itself.

The resource is the proof, not the test: what has tested may be removed, and the proof holds for
the machines, drivers and systems that it names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.actions import Observed, Settings, Timeouts
from gpuform.providers.calls import Call
from gpuform.providers.certifying import (
    Certifying,
    Machine,
    Tester,
    Wanted,
    change_of,
    due_notices,
    known_outputs,
    remove,
    with_gaps,
)
from gpuform.providers.errors import GpuformError, NotReady
from gpuform.providers.kubernetes.client import KubernetesClient
from gpuform.providers.kubernetes.nodes import software_of_nodes
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.readiness import EngineTester, Place, engine_of
from gpuform.providers.records import Verdict, Verdicts
from gpuform.providers.together.client import client_for
from gpuform.providers.together.cluster_view import GPUS_PER_NODE, standard_workers
from gpuform.providers.together.in_cluster import ObjectId, kubernetes_of, no_cluster
from gpuform.schemas.certification import WAIT_MINUTES, CertificationOutputs
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.notices import Notice
from gpuform.schemas.together import wire
from gpuform.schemas.together.certifications import CertificationInputs
from gpuform.schemas.together.volume_claims import DEFAULT_NAMESPACE
from gpuform.schemas.values import contains_unknown, count_of

Seen = Observed[CertificationOutputs]
_KIND = "certification"
DAY = 86400.0


class CertificationActions:
    """The verbs of a certification."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(self, call: Call, values: Mapping[str, Any]) -> Iterator[Problem]:  # noqa: ARG002 - the shape of Actions
        """None: the cluster may not be there yet."""
        return iter(())

    def create(self, call: Call, want: CertificationInputs) -> str:
        """Makes nothing: the tests begin when they are waited for. Finds out whether they can."""
        place = ObjectId(want.cluster_id, want.namespace or DEFAULT_NAMESPACE, want.name)
        self._tester(call, place, want).find()
        return str(place)

    def settle(self, call: Call, id_: str, want: CertificationInputs) -> Seen:
        """Tests the nodes that are not proven. Not ready while one is not."""
        place = ObjectId.parsed(id_, _KIND)
        tester = self._tester(call, place, want)
        wanted = Wanted(
            what=f"certification {want.name}",
            categories=want.categories,
            every=want.nodes == "all",
            limit=60.0 * (want.wait_minutes or WAIT_MINUTES),
        )
        certifying = Certifying(
            call,
            tester,
            wanted,
            lambda: self._machines(want.cluster_id),
            lambda: call.platform_time(self._client.clock_ahead)[0],
        )
        try:
            outputs = certifying.run()
        except NotReady as error:
            raise type(error)(error.reason, last=Observed({}, error.last)) from None
        self._keep_failures(call, place, outputs)
        return Observed({}, outputs)

    def read(self, call: Call, id_: str, known: Mapping[str, Any]) -> Seen | None:
        """What was proven, and which nodes of now that does not cover."""
        try:
            place = ObjectId.parsed(id_, _KIND)
        except GpuformError as error:
            call.on_warning(str(error))  # the id of somebody's import; nothing has it
            return None
        try:
            found = kubernetes_of(self._client, place.cluster_id)
        except NotReady as error:
            call.on_unchecked(f"nodes of certification {place.name}: {error.reason}")
            return Observed({}, known_outputs(call.known))
        if found is None:
            call.falls_with = place.cluster_id
            return None
        outputs = known_outputs(call.known)
        if not known:
            return Observed({}, outputs.model_copy(update={"not_ready_reason": "never tested"}))
        want = CertificationInputs.model_validate(known)
        try:
            outputs = with_gaps(outputs, _machines(*found), want.categories)
        except GpuformError as error:
            call.on_unchecked(f"nodes of certification {place.name}: {error.message}")
        return Observed({}, outputs)

    def update(
        self, call: Call, id_: str, want: CertificationInputs, changes: Sequence[FieldChange]
    ) -> None:
        """Sends nothing: `settle` tests what is not proven by then."""

    def delete(self, call: Call, id_: str, known: Mapping[str, Any]) -> None:
        """Removes the last test from the cluster, and what is held against its nodes."""
        place = ObjectId.parsed(id_, _KIND)
        Verdicts.beside(call.intents).forget(place.cluster_id, str(place))
        want = CertificationInputs.model_validate(known)
        try:
            tester = self._tester(call, place, want)
            run = tester.find()
        except GpuformError as error:
            if kubernetes_of(self._client, place.cluster_id) is None:
                return
            call.on_warning(f"certification {place.name} is forgotten, not removed: {error}")
            return
        if run is not None:
            remove(call, tester, f"certification {place.name}", run)

    def _tester(self, call: Call, place: ObjectId, want: CertificationInputs) -> Tester:
        found = kubernetes_of(self._client, place.cluster_id)
        if found is None:
            raise no_cluster(place.cluster_id)
        cluster, kubernetes = found
        engine = engine_of(kubernetes, cluster.cluster_name)
        where = Place(place.namespace, place.name)
        return EngineTester(engine, where, want.categories, call.urn or str(place))

    def _machines(self, cluster_id: str) -> list[Machine]:
        found = kubernetes_of(self._client, cluster_id)
        if found is None:
            raise no_cluster(cluster_id)
        return _machines(*found)

    def _keep_failures(self, call: Call, place: ObjectId, outputs: CertificationOutputs) -> None:
        """For the repair of the cluster: nodes that are at fault by themselves."""
        failures = [each.model_dump() for each in outputs.failures if each.is_alone]
        verdict = Verdict(place.cluster_id, str(place), tuple(failures))
        Verdicts.beside(call.intents).record(verdict)


class CertificationLifecycle(Lifecycle[CertificationInputs, CertificationOutputs]):
    """A certification of the nodes of a cluster of Together."""

    platform = "together"
    kind = "Certification"
    inputs = CertificationInputs
    outputs = CertificationOutputs
    timeouts = Timeouts(create=DAY, update=DAY, delete=600)  # `wait_minutes` is what ends waiting
    actions = CertificationActions
    id_example = "0f11e35c-a155-4e89-9e21-3f8ed2f99a2d/default/fabric"
    planned = frozenset({"num_gpus"})
    watched = frozenset({"gaps"})

    @classmethod
    def planned_changes(
        cls, old: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[FieldChange]:
        """`certify again` where nodes are not proven any more, or more of them come."""
        before, after = count_of(old.get("num_gpus")), declared.get("num_gpus")
        now = count_of(after)
        coming = (now - before) // GPUS_PER_NODE if now is not None and before is not None else 0
        again = change_of(old, coming)
        if again is not None:
            yield again
        if contains_unknown(after):
            because = "certify again if there are new nodes"
            yield FieldChange("num_gpus", Action.UPDATE, before, after, because=because)
        elif now != before:
            because = "" if coming > 0 else "fewer nodes: nothing to test"
            recorded = FieldChange(
                "num_gpus", Action.UPDATE, before, now, because=because, only_recorded=True
            )
            yield recorded

    @classmethod
    def due(cls, old: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterable[Notice]:  # noqa: ARG003 - the shape of Traits
        """Which nodes are not proven any more."""
        return due_notices(old)


def _machines(cluster: wire.Cluster, kubernetes: KubernetesClient) -> list[Machine]:
    """The standard workers by the platform, with the driver and system that Kubernetes tells."""
    software = software_of_nodes(kubernetes)
    told = {name: software.get(name) for name in (w.host_name for w in standard_workers(cluster))}
    return [
        Machine(
            node=each.host_name,
            machine=each.instance_id or each.node_id,
            driver=(found.driver if (found := told[each.host_name]) else "")
            or cluster.nvidia_driver_version,
            image=found.image if found else "",
        )
        for each in standard_workers(cluster)
    ]
