"""The Slurm of the emulated clusters."""
