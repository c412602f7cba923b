"""Policies of a resource: how it is drained, repaired, certified, and how long it lives."""
