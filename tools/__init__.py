"""Tools for work on the repository, which the package does not contain."""
