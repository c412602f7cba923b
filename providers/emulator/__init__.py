"""The platforms' APIs as their documents say, for tests and for trying things out."""
