"""Plans out of what is in files: saved plans, and previews of the Pulumi CLI."""
