"""Samsung Cloud Platform's Multi-node GPU Cluster API 1.2: what people use of it is the keys.

`routes` speaks HTTP, `access` checks who asks, `requests` and `queries` read what is asked,
`admission` and `operations` apply the rules, `nodes` and `fabrics` say what an object looks like
at a time, `catalogue` what each region offers, `settings` what can be set.
"""

ACCESS_KEY = "emulator-scp-access-key"
SECRET_KEY = "emulator-scp-secret-key"  # noqa: S105 - worth nothing, and everybody may know it
"""A pair of keys that may do everything."""

VIEWER_ACCESS_KEY = "emulator-scp-viewer-access-key"
VIEWER_SECRET_KEY = "emulator-scp-viewer-secret-key"  # noqa: S105 - as above
"""A pair of keys that may only read."""
