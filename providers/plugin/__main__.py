"""`python -m gpuform.providers.plugin ADDRESS`: the same as `pulumi-resource-gpuform ADDRESS`."""

from gpuform.providers.plugin.main import main

main()
