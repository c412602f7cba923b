"""Plans out of what is in files: saved plans, and previews of the Pulumi CLI."""

from gpuform.stacks.review.previews.reading import read_plan, read_saved_plan

__all__ = ["read_plan", "read_saved_plan"]
