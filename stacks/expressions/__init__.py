"""Evaluate Jinja2 expressions in values, with bounded time and memory.

`template` parses and evaluates a text, `sandbox` defines what expressions can do, and `values`
limits their cost. Topologies and `gpuform.expression` in Python programs use this package.
"""
