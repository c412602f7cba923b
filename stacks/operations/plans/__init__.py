"""Make, evaluate, mask, save and read the plan of a run."""
