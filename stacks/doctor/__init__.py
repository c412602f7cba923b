"""Examine everything that a run needs, change nothing, and report problems with their remedies.

`gpuform doctor` calls `examining`, which calls `machine_and_platforms`; `gpuform plugin doctor`
calls `plugin`. `findings` defines and renders the results.
"""
