"""Examine everything that a run needs, change nothing, and report problems with their remedies.

`gpuform doctor` calls `examining`, which calls `environment`, `stack` and `platforms`; `gpuform
plugin doctor` calls `plugin`. `findings` defines and renders the results.
"""
