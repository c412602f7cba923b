"""The command `pulumi-resource-gpuform`, which Pulumi starts and asks for a port.

The first line on standard output is the port, and nothing else is ever written there: whatever a
library prints goes to standard error, from before the first of them is imported.
"""

import os
import sys


def main() -> None:
    """Serves the plugin until Pulumi ends it; the first argument is the engine's address."""
    announced = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    from gpuform.providers.plugin.process import serve  # noqa: PLC0415 - nothing of it may print

    serve(sys.argv[1] if len(sys.argv) > 1 else "", announced)
