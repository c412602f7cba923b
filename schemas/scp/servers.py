"""The servers of the service: all have as many GPUs (SCP's service guide: servers of 8 GPUs)."""

from typing import Final

GPUS_OF_A_SERVER: Final = 8
