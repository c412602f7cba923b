"""The generated reference of the documentation: pages from models, commands and source."""
