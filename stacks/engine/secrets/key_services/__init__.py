"""Call key management services, which encrypt the data key of a stack.

`stack_secrets` opens a service by the URL of a secrets provider. The services' own keys never leave
them. URLs and stored formats are those of gocloud.dev/secrets, which Pulumi uses.
"""
