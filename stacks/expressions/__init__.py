"""Jinja2 expressions in values: references and results, in bounded time and space."""
