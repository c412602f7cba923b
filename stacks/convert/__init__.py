"""From one form of declaration to another: topologies, programs, states, Terraform's files."""
