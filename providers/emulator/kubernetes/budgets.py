"""Pod disruption budgets: how many pods may be evicted now."""

import math

from gpuform.providers.emulator.kubernetes.kinds import BUDGET, KINDS, POD
from gpuform.providers.emulator.kubernetes.objects import Object, Objects
from gpuform.providers.emulator.kubernetes.pods import is_done, is_healthy
from gpuform.providers.emulator.kubernetes.selectors import selected


def count_budgets(objects: Objects) -> None:
    """Bring the status of every budget to the pods that there are."""
    for budget in objects.of(BUDGET):
        objects.replace(BUDGET, budget, {**budget, "status": _status(objects, budget)})


def budgets_of(objects: Objects, pod: Object) -> list[Object]:
    labels = pod["metadata"].get("labels", {})
    return [
        budget
        for budget in objects.of(BUDGET, pod["metadata"]["namespace"])
        if selected(budget["spec"].get("selector"), labels)
    ]


def _status(objects: Objects, budget: Object) -> dict[str, int]:
    selector = budget["spec"].get("selector")
    pods = [
        pod
        for pod in objects.of(POD, budget["metadata"]["namespace"])
        if selected(selector, pod["metadata"].get("labels", {})) and not is_done(pod)
    ]
    expected, healthy = _expected(objects, pods), sum(map(is_healthy, pods))
    desired = _desired(budget, expected)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
    }


def _expected(objects: Objects, pods: list[Object]) -> int:
    """What the pods' controllers want to have; pods without one count as they are."""
    owners = {
        owner["uid"]: (owner["kind"], owner["name"], pod["metadata"]["namespace"])
        for pod in pods
        for owner in pod["metadata"].get("ownerReferences", [])
    }
    kinds = {kind.name: kind for kind in KINDS}
    found = [objects.get(kinds[kind], *place) for kind, *place in owners.values() if kind in kinds]
    scaled = {each["metadata"]["uid"]: each for each in found if each and "spec" in each}
    alone = sum(
        not any(owner["uid"] in scaled for owner in pod["metadata"].get("ownerReferences", []))
        for pod in pods
    )
    return alone + sum(int(each["spec"].get("replicas", 1)) for each in scaled.values())


def _desired(budget: Object, expected: int) -> int:
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        return max(0, expected - _number(spec["maxUnavailable"], expected))
    return _number(spec.get("minAvailable", 0), expected)


def _number(value: int | str, whole: int) -> int:
    """A number, or a share of the whole such as `50%`, rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(whole * int(value[:-1]) / 100)
    return int(value)
