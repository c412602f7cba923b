"""Commands that lead to a stack's clusters: credentials, hosts, shells."""
