"""Samsung SCP's GPU nodes and fabrics: what people declare, what the platform speaks."""
