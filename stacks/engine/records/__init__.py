"""Records of a stack that lie with its state: kept there, moved along, and settled."""
