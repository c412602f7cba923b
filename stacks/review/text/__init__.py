"""Render plans, runs and stacks as terminal text, one module for each view.

Commands of `stacks/cli` call the `render_` functions, which yield lines, and the `build_` functions
for `--json`.
"""
