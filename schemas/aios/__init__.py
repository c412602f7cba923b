"""The AIOS clusters registry: records of clusters, and the nodes in them."""
