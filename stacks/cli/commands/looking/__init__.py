"""Commands that look at a stack, its platforms and this machine, and change nothing."""
