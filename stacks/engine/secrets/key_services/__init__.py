"""Call key management services, which encrypt the data key of a stack.

The services' own keys never leave them. URLs and stored formats are those of gocloud.dev/secrets,
which Pulumi uses.
"""
