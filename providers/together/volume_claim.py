"""A claim of a cluster's pods on storage, made on the cluster through its Kubernetes API.

Facts are from the Together reference ('Kubernetes PVCs') and Kubernetes' documentation of
PersistentVolumeClaims: a claim of a class that waits for its first consumer stays Pending until a
pod uses it, which is as it should be; a claim goes only when no pod uses it any more.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once, name_taken
from gpuform.providers.errors import GpuformError, NotReady
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.records import Target
from gpuform.providers.together.claims import (
    ClusterClaims,
    KubernetesObjectId,
    build_missing_cluster_error,
    connect_to_claims,
)
from gpuform.providers.together.client import client_for
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.ids import DEFAULT_NAMESPACE
from gpuform.schemas.resource_facts import ResourceUsage
from gpuform.schemas.together.statuses import to_unix_time
from gpuform.schemas.together.volume_claims import (
    VolumeClaimInputs,
    VolumeClaimOutputs,
    build_manifest,
    quantity_to_bytes,
)
from gpuform.schemas.together.wire import Claim

OWNER = "gpuform.dev/urn"
"""The annotation that says which resource a claim was made for."""

INTERVAL = 10.0
"""Seconds between looks."""
_KIND = "volume claim"
_BOUND_FOR_IT = "pv.kubernetes.io/bound-by-controller"

Seen = Observed[VolumeClaimOutputs]


class VolumeClaimActions:
    """The verbs of a volume claim."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(self, call: ProviderContext, values: Mapping[str, Any]) -> Sequence[Any]:  # noqa: ARG002 - the shape of ResourceOperations
        """None: the cluster may not be there yet."""
        return ()

    def create(self, call: ProviderContext, inputs: VolumeClaimInputs) -> str:
        """One of that name that bears no mark of this resource is never taken."""
        place = KubernetesObjectId(
            inputs.cluster_id, inputs.namespace or DEFAULT_NAMESPACE, inputs.name
        )
        claims = connect_to_claims(self._client, inputs.cluster_id)
        if claims is None:
            call.refuse_creation()
            raise build_missing_cluster_error(inputs.cluster_id)
        target = Target(
            "together", "VolumeClaim", f"{place.namespace}/{place.name}", place.cluster_id
        )

        def candidates() -> list[Candidate]:
            found = self._standing(call, claims, place)
            if found is None:
                return []
            present = [Candidate(str(place), to_unix_time(found.metadata.created_at))]
            if found.metadata.annotations.get(OWNER) != call.urn:
                raise name_taken(target, present)
            return present

        def send() -> str:
            claims.create(place, _body(inputs, call.urn))
            return str(place)

        def exists(_id: str) -> bool:
            return bool(candidates())

        return create_once(call, Creation(target, candidates, exists, [Attempt(send)]))

    def wait_until_ready(
        self, call: ProviderContext, object_id: str, inputs: VolumeClaimInputs
    ) -> Seen:
        """Bound, at the declared size; or Pending where only a pod's use binds it."""
        place = KubernetesObjectId.parse(object_id, _KIND)

        def probe() -> PollResult[Seen]:
            claims = connect_to_claims(self._client, place.cluster_id)
            claim = claims.find(place) if claims else None
            if claims is None or claim is None:
                raise NotReady(f"claim {place} is gone from the cluster")
            return _look_at(claims, claim, inputs.storage)

        return wait_until_done(call, probe, label=f"claim {place.name}", interval=INTERVAL)

    def read(
        self,
        call: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],  # noqa: ARG002 - the shape of ResourceOperations
    ) -> Seen | None:
        """None also when another claim has its name now."""
        try:
            place = KubernetesObjectId.parse(object_id, _KIND)
        except GpuformError as error:
            call.on_warning(str(error))  # the id of somebody's import; nothing has it
            return None
        claims = connect_to_claims(self._client, place.cluster_id)
        if claims is None:
            call.deleted_with_id = place.cluster_id
            return None
        claim = claims.find(place)
        if claim is None or _is_another(claim, call):
            return None
        seen = _look_at(claims, claim, claim.spec.resources.requests.get("storage", "0")).value
        return Observed({**seen.inputs, "cluster_id": place.cluster_id}, seen.outputs)

    def update(
        self,
        call: ProviderContext,
        object_id: str,
        inputs: VolumeClaimInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Grows the claim, and sets its labels; those of others stay."""
        place = KubernetesObjectId.parse(object_id, _KIND)
        claims = self._claims(place.cluster_id)
        claim = claims.find(place)
        if claim is None or _is_another(claim, call):
            raise _gone(place)
        metadata: dict[str, Any] = {"uid": claim.metadata.uid}
        patch: dict[str, Any] = {"metadata": metadata}
        labels = [change for change in changes if change.path.split(".")[0] == "labels"]
        if labels:
            known = call.stored_properties.get("labels") or {}
            metadata["labels"] = {**dict.fromkeys(known), **(inputs.labels or {})}
        if any(change.path == "storage" for change in changes):
            _refuse_growth_unbound(claim, place)
            patch["spec"] = {"resources": {"requests": {"storage": inputs.storage}}}
        claims.patch(place, patch)

    def delete(
        self,
        call: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],  # noqa: ARG002 - the shape of ResourceOperations
    ) -> None:
        """Waits until it is gone, which it is only when no pod uses it any more."""
        place = KubernetesObjectId.parse(object_id, _KIND)
        claims = connect_to_claims(self._client, place.cluster_id)
        claim = claims.find(place) if claims else None
        if claims is None or claim is None or _is_another(claim, call):
            return
        uid = claim.metadata.uid
        claims.delete(place, uid)

        def probe() -> PollResult[object] | None:
            claims = connect_to_claims(self._client, place.cluster_id)
            left = claims.find(place) if claims else None
            if claims is None or left is None or left.metadata.uid != uid:
                return None
            users = ", ".join(claims.list_pods_using(place))
            return PollResult(None, f"used by {users}" if users else "being deleted")

        wait_until_gone(call, probe, label=f"claim {place.name}", interval=INTERVAL)

    def _claims(self, cluster_id: str) -> ClusterClaims:
        found = connect_to_claims(self._client, cluster_id)
        if found is None:
            raise build_missing_cluster_error(cluster_id)
        return found

    def _standing(
        self, call: ProviderContext, claims: ClusterClaims, place: KubernetesObjectId
    ) -> Claim | None:
        """The claim of a name, once one that is being deleted is no longer in the way."""
        found = claims.find(place)
        if found is None or found.metadata.deleted_at is None:
            return found

        def probe() -> PollResult[Claim | None]:
            found = claims.find(place)
            is_leaving = found is not None and found.metadata.deleted_at is not None
            return PollResult(found, "an earlier claim is being deleted", is_done=not is_leaving)

        try:
            return wait_until_done(call, probe, label=f"claim {place.name}", interval=INTERVAL)
        except NotReady as error:
            call.raise_if_cancelled()
            raise GpuformError(
                error.reason, hint="end the pods that use the earlier claim of that name"
            ) from None


class VolumeClaimLifecycle(Lifecycle[VolumeClaimInputs, VolumeClaimOutputs]):
    """A volume claim on a cluster of Together."""

    platform = "together"
    kind = "VolumeClaim"
    inputs = VolumeClaimInputs
    outputs = VolumeClaimOutputs
    timeouts = Timeouts(create=600, update=600, delete=600)
    operations = VolumeClaimActions
    id_example = "0f11e35c-a155-4e89-9e21-3f8ed2f99a2d/default/shared-pvc"

    @classmethod
    def compute_resource_usage(
        cls,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> ResourceUsage:
        """Return whether the data stays: a shared volume outlives its claims, NVMe does not."""
        return ResourceUsage(keeps_data=isinstance(inputs.get("volume_name"), str))


def _body(want: VolumeClaimInputs, urn: str | None) -> dict[str, Any]:
    body = build_manifest(want)
    if urn is not None:
        body["metadata"]["annotations"] = {OWNER: urn}
    return body


def _look_at(claims: ClusterClaims, claim: Claim, storage: str) -> PollResult[Seen]:
    """A claim as seen by somebody who waits for a size."""
    told, done, failed = _state(claims, claim, storage)
    outputs = VolumeClaimOutputs(
        ready=done,
        not_ready_reason=None if done else (failed or told),
        status=claim.status.phase,
        uid=claim.metadata.uid,
        capacity=claim.status.capacity.get("storage"),
        bound_volume=claim.spec.volume_name if claim.status.phase == "Bound" else None,
        created_at=claim.metadata.created_at,
    )
    return PollResult(Observed(_inputs(claim), outputs), told, is_done=done, failure=failed)


def _state(claims: ClusterClaims, claim: Claim, storage: str) -> tuple[str, bool, str | None]:
    """What to tell of it, whether it is as wanted, and why it never will be."""
    phase, capacity = claim.status.phase, claim.status.capacity.get("storage")
    if claim.metadata.deleted_at is not None:
        return phase, False, "it is being deleted"
    if phase == "Lost":
        return phase, False, "Lost: the volume that it was bound to is gone"
    if phase == "Bound":
        if capacity is None or _amount(capacity) >= _amount(storage):
            return phase, True, None
        return f"Bound to {capacity} of {storage}: its volume has to grow first", False, None
    if phase == "Pending" and claims.is_waiting_for_pod(claim):
        return phase, True, None
    return (claims.explain_pending(claim) if phase == "Pending" else phase), False, None


def _amount(quantity: str) -> Decimal:
    """What cannot be read is taken for nothing."""
    try:
        return quantity_to_bytes(quantity)
    except ValueError:
        return Decimal(0)


def _inputs(claim: Claim) -> dict[str, Any]:
    """A claim that the controller bound was declared by its class, not by its volume."""
    metadata, spec = claim.metadata, claim.spec
    is_by_name = spec.volume_name is not None and _BOUND_FOR_IT not in metadata.annotations
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "storage": spec.resources.requests.get("storage"),
        "volume_name": spec.volume_name if is_by_name else None,
        "storage_class_name": None if is_by_name else spec.storage_class_name,
        "access_modes": list(spec.access_modes) or None,
        "labels": metadata.labels or None,
    }


def _is_another(claim: Claim, call: ProviderContext) -> bool:
    """Whether somebody made it anew since the state was written."""
    known = call.stored_properties.get("uid")
    return known is not None and known != claim.metadata.uid


def _gone(place: KubernetesObjectId) -> GpuformError:
    return GpuformError(
        f"claim {place} is gone from the cluster",
        hint="refresh (`gpuform refresh`), then run it again to make it anew",
    )


def _refuse_growth_unbound(claim: Claim, place: KubernetesObjectId) -> None:
    if claim.status.phase == "Pending":
        raise GpuformError(
            f"claim {place} is Pending: Kubernetes lets only bound claims grow",
            hint="start a pod that uses it, which binds it, and run it again",
        )
