"""Commands that look at a stack's state and edit it."""
