"""Ways in: credentials and addresses of clusters, for the tools of people."""
