"""Convert the files of Terraform or OpenTofu to declarations; `topology` is the entry point."""

from gpuform.stacks.convert.terraform.topology import TerraformConversion, convert_terraform

__all__ = ["TerraformConversion", "convert_terraform"]
