"""Models of Lens, which monitors clusters: health gates, conditions, reports of GPUs."""
