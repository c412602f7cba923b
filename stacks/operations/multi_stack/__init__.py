"""Plan and apply several stacks as one run, each stack in a process of its own."""
