"""Emulate Samsung Cloud Platform's Multi-node GPU Cluster API 1.2. Users need only the keys.

`routes` speaks HTTP, `access` checks who asks and which version, `requests` and `queries` parse and
check what is asked, `creating` and `operations` change objects, `nodes` models what an object is at
a time, `catalogue` lists what each region offers.
"""

ACCESS_KEY = "emulator-scp-access-key"
SECRET_KEY = "emulator-scp-secret-key"  # noqa: S105 - worth nothing, and everybody may know it
"""The secret key of the pair that may do everything."""

VIEWER_ACCESS_KEY = "emulator-scp-viewer-access-key"
VIEWER_SECRET_KEY = "emulator-scp-viewer-secret-key"  # noqa: S105 - as above
"""The secret key of the pair that may only read."""
