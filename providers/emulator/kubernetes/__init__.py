"""Emulate the Kubernetes API of each emulated Together cluster, under `/kubernetes/<cluster id>`.

`routes` speaks HTTP, `verbs` does what is asked of an object, `admission` checks it, `objects`
stores it, and `controllers` brings a cluster to what holds at a time: its nodes, pods, budgets and
volumes. Its controls are for tests.
"""
