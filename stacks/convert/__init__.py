"""Convert declarations between forms: topologies, programs, states and Terraform's files.

`operations.converting` calls this package; `declaration_writer` renders the results.
"""
