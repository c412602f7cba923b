"""What the platforms offer: asked for, kept for a while, and held against what is declared."""
