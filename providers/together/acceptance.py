"""What Together's own acceptance tests say of a cluster, as results of the same form as others.

The reference names the parameters of the tests; their course is told by the phases of the cluster
alone (the platform's SDK): no figure, and no node by itself.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from gpuform.schemas.certification import CategoryResult
from gpuform.schemas.together import wire
from gpuform.schemas.together.timestamps import unix_time

_TESTS: Final = {
    "CLUSTER_PHASE_RUNNING_ACCEPTANCE_TESTS": "acceptance/tests",
    "CLUSTER_PHASE_RUNNING_NCCL_TESTS": "acceptance/nccl",
}
"""The phase of each test -> what the result is called."""
_PASSED: Final = frozenset({*_TESTS, "CLUSTER_PHASE_READY"})
"""The phases that follow a test that has passed; after another one nobody knows."""


def acceptance_results(
    cluster: wire.Cluster, workers: Sequence[wire.GpuWorkerNode]
) -> list[CategoryResult]:
    """The last result of each test that has ended, over the workers that were there by then."""
    dated = [each for each in cluster.phase_transitions if unix_time(each.transition_time)]
    phases = sorted(dated, key=lambda each: unix_time(each.transition_time) or 0.0)
    found: dict[str, CategoryResult] = {}
    for begun, ended in pairwise(phases):
        category = _TESTS.get(begun.phase)
        if category is not None:
            found[category] = CategoryResult(
                category=category,
                nodes=[each.host_name for each in workers if _was_there(each, ended)],
                passed=ended.phase in _PASSED,
                at=ended.transition_time,
            )
    return list(found.values())


def is_accepted(values: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether the tests are declared, and prove all workers of these outputs.

    Of a cluster that is not there yet they will, or it never becomes ready.
    """
    declared = values.get("acceptance_tests_params")
    if not isinstance(declared, Mapping) or declared.get("enabled") is not True:
        return False
    if not seen:
        return True
    results = [CategoryResult.model_validate(each) for each in seen.get("acceptance") or ()]
    workers = {str(each.get("host_name")) for each in seen.get("gpu_worker_nodes") or ()}
    return bool(results) and all(each.passed and workers <= {*each.nodes} for each in results)


def _was_there(worker: wire.GpuWorkerNode, ended: wire.PhaseTransition) -> bool:
    """Whether a worker's first phase is older than the end of a test; not so where nobody tells."""
    moments = [unix_time(each.transition_time) for each in worker.phase_transitions]
    first = min((each for each in moments if each is not None), default=None)
    end = unix_time(ended.transition_time)
    return first is not None and end is not None and first <= end
