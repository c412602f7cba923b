"""Emulate TensorOne's cluster API, version 1. Users need only the keys.

`routes` speaks HTTP, `access` knows keys and counts requests, `requests` parses bodies and lists,
`operations` applies the rules, `clusters` models what a cluster is at a time, `views` shows it, and
`catalogue` lists what is offered.
"""

KEY = "emulator-tensorone-key"
"""An enterprise key that may do everything. Known to everybody, worth nothing."""

FREE_KEY = "emulator-tensorone-free-key"
"""A key that may do everything, with the limits of the free tier."""

PRO_KEY = "emulator-tensorone-pro-key"
"""A key that may do everything, with the limits of the pro tier."""

READER_KEY = "emulator-tensorone-reader-key"
"""A pro key that may only read."""
