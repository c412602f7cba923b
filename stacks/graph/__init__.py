"""Stacks as pictures: what there is, what is in what, and what needs what."""
