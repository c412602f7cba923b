"""Reconcile a node pool of Samsung SCP with its declaration.

`node_pool` calls this package; `gpu_node` and `node_facts` share parts of it.
"""
