"""Topology files in editors: what `gpuform lsp` knows of a text and of the place of the cursor."""
