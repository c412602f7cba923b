"""Together GPU clusters: what people declare, what the platform speaks and what is between."""
