"""Plans, runs and stacks as text, for the terminal: each view is a module."""
