"""Draw stacks as diagrams: their resources, containment, and dependencies."""
