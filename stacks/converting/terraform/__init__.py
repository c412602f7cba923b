"""A topology out of the files of Terraform or OpenTofu."""
