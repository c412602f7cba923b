"""Render plans, runs and stacks as terminal text, one module a view."""
