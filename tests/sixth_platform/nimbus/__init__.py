"""Declare Nimbus's GPU clusters as Pulumi resources."""

from typing import TYPE_CHECKING

from nimbus.platform import PLATFORM

if TYPE_CHECKING:
    from nimbus.resources import Cluster

__all__ = ["Cluster"]

__getattr__ = PLATFORM.load_exported
