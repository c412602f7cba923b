"""The plan that a run makes: appraised, masked, saved, and kept to."""
