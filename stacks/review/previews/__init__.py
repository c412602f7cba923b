"""Plans out of what is in files: saved plans, and previews of the Pulumi CLI."""

from gpuform.stacks.review.previews.reading import (
    read_plan,
    read_plans,
    read_saved_plan,
    read_saved_plans,
)

__all__ = ["read_plan", "read_plans", "read_saved_plan", "read_saved_plans"]
