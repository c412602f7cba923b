"""Select and open what an operation works on: project, stack, interpreter and environment."""
