"""Programs for whoever works on gpuform: they are no part of what is installed."""
