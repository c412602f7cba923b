"""Together's GPU cluster API: what people use of it is the two keys.

`routes` speaks HTTP, `requests` reads bodies, `operations` applies the rules, `clusters` and
`volumes` say what an object looks like at a time, `catalogue` what each region offers.
"""

ADMIN_KEY = "emulator-admin-key"
"""May do everything. Known to everybody, worth nothing."""

MEMBER_KEY = "emulator-member-key"
"""May only read (platform document, 'User Management': Member)."""
