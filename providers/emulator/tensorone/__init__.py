"""TensorOne's cluster API, version 1: what people use of it is the keys.

`routes` speaks HTTP, `access` knows keys and counts requests, `requests` reads bodies, `operations`
applies the rules, `clusters` says how a cluster progresses, `views` what it looks like at a time,
`listing` chooses and pages, `catalogue` has what is offered.
"""

KEY = "emulator-tensorone-key"
"""An enterprise key that may do everything. Known to everybody, worth nothing."""

FREE_KEY = "emulator-tensorone-free-key"
"""The same with the limits of the free tier."""

PRO_KEY = "emulator-tensorone-pro-key"
"""The same with the limits of the pro tier."""

READER_KEY = "emulator-tensorone-reader-key"
"""A pro key that may only read."""
