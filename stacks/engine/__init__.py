"""Pulumi's engine for one process; README.md describes its packages."""
