"""Create, read, grow and delete volume claims in a cluster, through its Kubernetes API.

`gpuform.providers.lifecycle` calls `VolumeClaimOperations` through `VolumeClaimLifecycle`, whose
dotted path is in state files; `claims` sends the requests.

Facts are from document 003 ("Kubernetes PVCs") and Kubernetes' documentation of
PersistentVolumeClaims: a claim of a class that waits for its first consumer stays Pending until a
pod uses the claim, which is as it should be; Kubernetes deletes a claim only when no pod uses it
any more.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.creating import (
    Attempt,
    Candidate,
    Creation,
    build_name_taken_error,
    create_once,
)
from gpuform.providers.errors import GpuformError, NotReady
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.records import Target
from gpuform.providers.together.claims import (
    ClusterClaims,
    KubernetesObjectId,
    build_missing_cluster_error,
    connect_to_claims,
)
from gpuform.providers.together.client import get_client
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import DEFAULT_NAMESPACE
from gpuform.schemas.resource_facts import ResourceUsage
from gpuform.schemas.together.volume_claims import (
    VolumeClaimInputs,
    VolumeClaimOutputs,
    build_manifest,
    quantity_to_bytes,
)
from gpuform.schemas.together.wire import Claim
from gpuform.schemas.values import to_unix_time

OWNER_ANNOTATION = "gpuform.dev/urn"
"""Annotation with the URN of the resource that a claim was created for."""

POLL_INTERVAL_S = 10.0
"""Seconds between two polls."""
_ID_KIND = "volume claim"
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"

ObservedClaim = Observed[VolumeClaimOutputs]


class VolumeClaimOperations:
    """The operations of a volume claim."""

    def __init__(self, settings: Settings) -> None:
        self._client = get_client(settings)

    def create(self, context: ProviderContext, inputs: VolumeClaimInputs) -> str:
        """Create a claim and return the id, after the end of an earlier claim in deletion.

        A claim with the name and without this resource's annotation is never taken over.

        Raises:
            NameTaken: another claim has the name.
            NotReady: the cluster has no Kubernetes API yet.
            GpuformError: the cluster is missing, or the earlier claim does not end.
        """
        claim_id = KubernetesObjectId(
            inputs.cluster_id, inputs.namespace or DEFAULT_NAMESPACE, inputs.name
        )
        claims = connect_to_claims(self._client, inputs.cluster_id)
        if claims is None:
            # nothing was sent: no intent has to be kept for this create
            context.refuse_creation()
            raise build_missing_cluster_error(inputs.cluster_id)
        target = Target(
            "together", "VolumeClaim", f"{claim_id.namespace}/{claim_id.name}", claim_id.cluster_id
        )

        def list_candidates() -> list[Candidate]:
            existing_claim = self._find_claim_not_deleting(context, claims, claim_id)
            if existing_claim is None:
                return []
            present_candidates = [
                Candidate(str(claim_id), to_unix_time(existing_claim.metadata.created_at))
            ]
            # only the annotation proves that an earlier attempt of this resource created the claim
            if existing_claim.metadata.annotations.get(OWNER_ANNOTATION) != context.urn:
                raise build_name_taken_error(context, target, present_candidates)
            return present_candidates

        def send() -> str:
            claims.create(claim_id, _build_body(inputs, context.urn))
            return str(claim_id)

        def exists(_id: str) -> bool:
            return bool(list_candidates())

        return create_once(context, Creation(target, list_candidates, exists, [Attempt(send)]))

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: VolumeClaimInputs
    ) -> ObservedClaim:
        """Wait until a claim is bound at the declared size, or Pending for the first pod.

        Raises:
            NotReady: the claim is gone or has failed, or the time is over.
        """
        claim_id = KubernetesObjectId.parse(object_id, _ID_KIND)

        def poll() -> PollResult[ObservedClaim]:
            claims = connect_to_claims(self._client, claim_id.cluster_id)
            claim = claims.find(claim_id) if claims else None
            if claims is None or claim is None:
                raise NotReady(f"claim {claim_id} no longer exists in the cluster")
            return _evaluate_claim(claims, claim, inputs.storage)

        return wait_until_done(
            context, poll, label=f"claim {claim_id.name}", interval=POLL_INTERVAL_S
        )

    def read(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],  # noqa: ARG002 - the shape of ResourceOperations
    ) -> ObservedClaim | None:
        """Return the claim, or None if the claim is missing or replaced by another one.

        A malformed id is a warning and gives None. For a deleted cluster
        `context.progress.deleted_with_id` is set.

        Raises:
            NotReady: the cluster has no Kubernetes API yet.
        """
        try:
            claim_id = KubernetesObjectId.parse(object_id, _ID_KIND)
        except GpuformError as error:
            context.on_warning(str(error))  # the id of somebody's import; nothing has it
            return None
        claims = connect_to_claims(self._client, claim_id.cluster_id)
        if claims is None:
            # the cluster is deleted, and its claims with it
            context.progress.deleted_with_id = claim_id.cluster_id
            return None
        claim = claims.find(claim_id)
        if claim is None or _is_replaced(claim, context):
            return None
        observed = _evaluate_claim(
            claims, claim, claim.spec.resources.requests.get("storage", "0")
        ).value
        return Observed({**observed.inputs, "cluster_id": claim_id.cluster_id}, observed.outputs)

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: VolumeClaimInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Grow the claim or set labels by the entries of `changes`; labels of other tools stay.

        Raises:
            GpuformError: the cluster or the claim is gone, or the claim to grow is not bound.
            NotReady: the cluster has no Kubernetes API yet.
        """
        claim_id = KubernetesObjectId.parse(object_id, _ID_KIND)
        claims = self._require_claims(claim_id.cluster_id)
        claim = claims.find(claim_id)
        if claim is None or _is_replaced(claim, context):
            raise GpuformError(
                f"claim {claim_id} no longer exists in the cluster",
                hint="run `gpuform refresh`, then run the command again to recreate the claim",
            )
        # with the uid Kubernetes refuses the patch if another claim has got the name
        metadata: dict[str, Any] = {"uid": claim.metadata.uid}
        patch: dict[str, Any] = {"metadata": metadata}
        labels = [change for change in changes if change.path.split(".")[0] == "labels"]
        if labels:
            known_labels = context.stored_properties.get("labels") or {}
            # a merge patch removes a label by null: only labels of the last declaration are removed
            metadata["labels"] = {**dict.fromkeys(known_labels), **(inputs.labels or {})}
        if any(change.path == "storage" for change in changes):
            _refuse_growth_unbound(claim, claim_id)
            patch["spec"] = {"resources": {"requests": {"storage": inputs.storage}}}
        claims.patch(claim_id, patch)

    def delete(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],  # noqa: ARG002 - the shape of ResourceOperations
    ) -> None:
        """Delete the claim, and wait until no pod uses it and Kubernetes has removed it.

        A missing or replaced claim, or a deleted cluster, is no error.

        Raises:
            NotReady: the cluster has no Kubernetes API, or a pod still uses the claim at the
                deadline.
        """
        claim_id = KubernetesObjectId.parse(object_id, _ID_KIND)
        claims = connect_to_claims(self._client, claim_id.cluster_id)
        claim = claims.find(claim_id) if claims else None
        if claims is None or claim is None or _is_replaced(claim, context):
            return
        uid = claim.metadata.uid
        claims.delete(claim_id, uid)

        def poll() -> PollResult[object] | None:
            claims = connect_to_claims(self._client, claim_id.cluster_id)
            remaining_claim = claims.find(claim_id) if claims else None
            # a claim with another uid is a new one of the name
            if claims is None or remaining_claim is None or remaining_claim.metadata.uid != uid:
                return None
            pod_names = ", ".join(claims.list_pods_using(claim_id))
            return PollResult(None, f"used by {pod_names}" if pod_names else "being deleted")

        wait_until_gone(context, poll, label=f"claim {claim_id.name}", interval=POLL_INTERVAL_S)

    def _require_claims(self, cluster_id: str) -> ClusterClaims:
        """Return the volume claims of a cluster.

        Raises:
            GpuformError: the cluster is deleted.
            NotReady: the cluster has no Kubernetes API yet.
        """
        claims = connect_to_claims(self._client, cluster_id)
        if claims is None:
            raise build_missing_cluster_error(cluster_id)
        return claims

    def _find_claim_not_deleting(
        self, context: ProviderContext, claims: ClusterClaims, claim_id: KubernetesObjectId
    ) -> Claim | None:
        """Return the claim with an id, or None, after waiting for the end of a deletion.

        Raises:
            GpuformError: the deletion does not end in time.
        """
        claim = claims.find(claim_id)
        if claim is None or claim.metadata.deleted_at is None:
            return claim

        def poll() -> PollResult[Claim | None]:
            claim = claims.find(claim_id)
            is_deleting = claim is not None and claim.metadata.deleted_at is not None
            return PollResult(
                claim, "Kubernetes is deleting an earlier claim", is_done=not is_deleting
            )

        try:
            return wait_until_done(
                context, poll, label=f"claim {claim_id.name}", interval=POLL_INTERVAL_S
            )
        except NotReady as error:
            context.raise_if_cancelled()
            raise GpuformError(
                error.reason, hint="end the pods that use the earlier claim of the same name"
            ) from None


class VolumeClaimLifecycle(Lifecycle[VolumeClaimInputs, VolumeClaimOutputs]):
    """The resource kind of volume claims in Together's clusters."""

    platform = "together"
    kind = "VolumeClaim"
    inputs = VolumeClaimInputs
    outputs = VolumeClaimOutputs
    timeouts = Timeouts(create=600, update=600, delete=600)
    operations = VolumeClaimOperations
    id_example = "0f11e35c-a155-4e89-9e21-3f8ed2f99a2d/default/shared-pvc"
    hooks = KindHooks(
        compute_resource_usage=lambda inputs, _outputs: ResourceUsage(
            keeps_data=isinstance(inputs.get("volume_name"), str)
        )
    )


def _build_body(inputs: VolumeClaimInputs, urn: str | None) -> dict[str, Any]:
    """Build the body to create a claim, with the URN of the resource as an annotation.

    Without a URN there is no annotation.
    """
    body = build_manifest(inputs)
    if urn is not None:
        body["metadata"]["annotations"] = {OWNER_ANNOTATION: urn}
    return body


def _evaluate_claim(
    claims: ClusterClaims, claim: Claim, wanted_storage: str
) -> PollResult[ObservedClaim]:
    """Return the poll result of a claim: ready at `wanted_storage`, not yet ready, or failed.

    The value has the inputs and outputs of the claim in each case.
    """
    progress, is_ready, failure = _determine_state(claims, claim, wanted_storage)
    outputs = VolumeClaimOutputs(
        ready=is_ready,
        not_ready_reason=None if is_ready else (failure or progress),
        status=claim.status.phase,
        uid=claim.metadata.uid,
        capacity=claim.status.capacity.get("storage"),
        bound_volume=claim.spec.volume_name if claim.status.phase == "Bound" else None,
        created_at=claim.metadata.created_at,
    )
    return PollResult(
        Observed(_extract_inputs(claim), outputs), progress, is_done=is_ready, failure=failure
    )


def _determine_state(
    claims: ClusterClaims, claim: Claim, wanted_storage: str
) -> tuple[str, bool, str | None]:
    """Return progress, readiness, and the reason of a final failure (or None).

    A Pending claim that only the first pod's use binds is ready.
    """
    phase, capacity = claim.status.phase, claim.status.capacity.get("storage")
    if claim.metadata.deleted_at is not None:
        return phase, False, "it is being deleted"
    if phase == "Lost":
        return phase, False, "Lost: its volume no longer exists"
    if phase == "Bound":
        if capacity is None or _parse_amount(capacity) >= _parse_amount(wanted_storage):
            return phase, True, None
        return f"Bound to {capacity} of {wanted_storage}: its volume must grow first", False, None
    # only the use by a pod binds the claim, which may come days later
    if phase == "Pending" and claims.has_first_use_binding(claim):
        return phase, True, None
    return (claims.explain_pending(claim) if phase == "Pending" else phase), False, None


def _parse_amount(quantity: str) -> Decimal:
    """Return the bytes of a quantity; 0 for an unreadable quantity."""
    try:
        return quantity_to_bytes(quantity)
    except ValueError:
        return Decimal(0)


def _extract_inputs(claim: Claim) -> dict[str, Any]:
    """Return the input fields as reported by Kubernetes; None for an unreported field.

    A claim that the controller bound has its class as input, any other bound claim its volume.
    """
    metadata, spec = claim.metadata, claim.spec
    is_bound_by_name = (
        spec.volume_name is not None and _BOUND_BY_CONTROLLER not in metadata.annotations
    )
    return {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "storage": spec.resources.requests.get("storage"),
        "volume_name": spec.volume_name if is_bound_by_name else None,
        "storage_class_name": None if is_bound_by_name else spec.storage_class_name,
        "access_modes": list(spec.access_modes) or None,
        "labels": metadata.labels or None,
    }


def _is_replaced(claim: Claim, context: ProviderContext) -> bool:
    """Return True if somebody has recreated the claim since the state was written.

    False if the state has no uid of the claim.
    """
    known_uid = context.stored_properties.get("uid")
    return known_uid is not None and known_uid != claim.metadata.uid


def _refuse_growth_unbound(claim: Claim, claim_id: KubernetesObjectId) -> None:
    """Raise GpuformError if the claim is Pending: Kubernetes lets only bound claims grow."""
    if claim.status.phase == "Pending":
        raise GpuformError(
            f"claim {claim_id} is Pending: Kubernetes grows only bound claims",
            hint="start a pod that uses the claim, which binds it, then run the command again",
        )
