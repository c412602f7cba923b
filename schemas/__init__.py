"""Define the models of inputs, outputs and answers, their rules, and the changes between two."""
