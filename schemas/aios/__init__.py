"""Models of the AIOS registry: records of clusters and their nodes, filters and updates."""
