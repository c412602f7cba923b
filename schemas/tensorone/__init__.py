"""TensorOne's GPU clusters: what people declare, what the platform speaks."""
