"""Emulate Together's GPU cluster API. Users need only the two keys of this module.

`routes` speaks HTTP, `requests` parses bodies, `admission` checks them, `operations` changes the
store, `clusters`, `nodes`, `volumes` and `remediations` model what an object is at a time, and
`catalogue` lists what each region offers.
"""

ADMIN_KEY = "emulator-admin-key"
"""The key that may do everything. Known to everybody, worth nothing."""

MEMBER_KEY = "emulator-member-key"
"""The key that may only read (platform document, 'User Management': Member)."""
