"""Clients of Kubernetes APIs, whichever platform has created the cluster.

`client` sends requests, `kubeconfig` reads credentials, `nodes` reads node objects, and `scheduler`
drains nodes.
"""
