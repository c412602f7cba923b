"""Kubernetes, the scheduler of a cluster, through its own client."""
