"""Several stacks planned and applied as one, each by a process of its own."""
