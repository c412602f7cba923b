"""Run the command `pulumi-resource-gpuform`, which the Pulumi engine starts.

The engine reads the plugin's port from the first line of standard output. Everything else, such as
what an imported library prints, is sent to standard error.
"""

import os
import sys

from gpuform.providers import collect_less_garbage


def main() -> None:
    """Serve the plugin until Pulumi ends the process; argument 1 is the engine's address."""
    port_descriptor = os.dup(1)
    # Redirect before any import: libraries and child processes may print at once.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    collect_less_garbage()
    from gpuform.providers.plugin.process import serve  # noqa: PLC0415 - nothing of it may print

    serve(sys.argv[1] if len(sys.argv) > 1 else "", port_descriptor)
