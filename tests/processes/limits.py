"""How long tests wait for other threads and processes."""

LAST_RESORT = 1700.0
"""Seconds after which something has hung. Tests wait for what happens, however busy the machine is:
what takes a second elsewhere may take a minute there."""
