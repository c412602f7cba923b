"""Start the plugin with `python -m gpuform.providers.plugin ADDRESS`, as installed launchers do."""

from gpuform.providers.plugin.main import main

main()
