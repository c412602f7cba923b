"""A topology out of the files of Terraform or OpenTofu."""

from gpuform.stacks.convert.terraform.topology import TakenOver, topology_of_terraform

__all__ = ["TakenOver", "topology_of_terraform"]
