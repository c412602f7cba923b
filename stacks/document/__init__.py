"""YAML files with positions: text in, a tree of nodes and all that is wrong with it out."""
