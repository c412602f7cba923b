"""Certify GPU nodes: test them, keep the evidence, and find nodes that the evidence does not cover.

Platforms subclass `CertificationOperations`. `readiness` and `slurm` run the tests.
"""

from gpuform.providers.certifying.operations import DAY_S, CertificationOperations, NodeAccess
from gpuform.providers.certifying.runs import (
    CertificationRequest,
    CertificationRun,
    CertificationRunner,
    NodeTester,
    get_last_run_id,
    parse_known_outputs,
    remove_run,
    update_gaps,
)
from gpuform.providers.certifying.verdicts import (
    CertifiableNode,
    JobResult,
    ReportedFailure,
    UnreadableResult,
    build_certify_again_change,
    build_due_certification_notices,
    find_evidence_gaps,
    format_gaps,
    judge_nodes,
    select_current_evidence,
    tests_repaired_nodes,
)

__all__ = [
    "DAY_S",
    "CertifiableNode",
    "CertificationOperations",
    "CertificationRequest",
    "CertificationRun",
    "CertificationRunner",
    "JobResult",
    "NodeAccess",
    "NodeTester",
    "ReportedFailure",
    "UnreadableResult",
    "build_certify_again_change",
    "build_due_certification_notices",
    "find_evidence_gaps",
    "format_gaps",
    "get_last_run_id",
    "judge_nodes",
    "parse_known_outputs",
    "remove_run",
    "select_current_evidence",
    "tests_repaired_nodes",
    "update_gaps",
]
