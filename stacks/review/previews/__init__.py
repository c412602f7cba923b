"""Read plans from files: saved plans of gpuform, and previews of gpuform or the Pulumi CLI.

`gpuform review` and the commands with `--plan` call this package.
"""

from gpuform.stacks.review.previews.reading import (
    read_plan,
    read_plans,
    read_saved_plan,
    read_saved_plans,
)

__all__ = ["read_plan", "read_plans", "read_saved_plan", "read_saved_plans"]
