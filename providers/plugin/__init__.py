"""The provider plugin: the lifecycles, for every language of Pulumi."""
