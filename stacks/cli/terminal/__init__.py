"""The terminal: output, progress, questions and signals."""
