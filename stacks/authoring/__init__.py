"""Writes what people write: the entries of a topology, or the Python program that says the same.

`declared` has the models; `yaml_*` and `python_*` make text of them, or add them to a person's file
without touching what is there.
"""
