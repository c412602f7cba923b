"""Samsung SCP's node pools, GPU nodes and fabrics as Pulumi resources."""
