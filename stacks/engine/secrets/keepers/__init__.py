"""Key management services: each keeps a key that never leaves it, and that the data key of a stack
is encrypted under. URLs and what is stored are those of gocloud.dev/secrets, which Pulumi uses."""
