"""A Python program out of a topology."""
