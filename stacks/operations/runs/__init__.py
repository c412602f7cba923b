"""The runs of a stack, with their options, results, logs and saved plans."""
