"""Topology files: what they declare, instance by instance, checked and ready to register."""
