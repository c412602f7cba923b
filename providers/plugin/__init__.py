"""The provider plugin `pulumi-resource-gpuform`: the lifecycles for every language of Pulumi."""
