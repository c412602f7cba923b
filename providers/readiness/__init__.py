"""NVIDIA's Cluster Readiness Engine, through the Kubernetes of the cluster that it tests."""

from gpuform.providers.readiness.engine import Place, ReadinessEngine, engine_of
from gpuform.providers.readiness.results import EngineTester, jobs_of

__all__ = ["EngineTester", "Place", "ReadinessEngine", "engine_of", "jobs_of"]
