"""Serve gpuform's lifecycles to every language of Pulumi, as a provider plugin.

The plugin's program is `pulumi-resource-gpuform`. `main` starts the plugin's process, `servicer`
answers the engine's calls, `package_schema` describes the package, and `locations` puts the plugin
where the Pulumi CLI finds it.
"""
