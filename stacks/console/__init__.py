"""Expressions of topologies, evaluated against what a stack's state has."""
