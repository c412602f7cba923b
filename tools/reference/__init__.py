"""Render the generated pages of `docs/reference` from models, commands and decisions."""
