"""The Kubernetes API of the emulated clusters."""
