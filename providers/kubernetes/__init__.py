"""The Kubernetes API of clusters, whichever platform made them."""
