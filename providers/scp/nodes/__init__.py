"""Plan, create, change and delete GPU nodes of SCP, alone or in a pool.

The operations of node pools and GPU nodes call this package, which calls `scp.client`.
"""
