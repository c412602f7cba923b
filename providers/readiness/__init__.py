"""Certify nodes by NVIDIA's Cluster Readiness Engine, in the Kubernetes of the tested cluster.

Platforms' certifications call `find_engine` and pass an `EngineTester` to `certifying`.
"""

from gpuform.providers.readiness.engine import CertificationName, ReadinessEngine, find_engine
from gpuform.providers.readiness.results import EngineTester, read_job_results

__all__ = [
    "CertificationName",
    "EngineTester",
    "ReadinessEngine",
    "find_engine",
    "read_job_results",
]
