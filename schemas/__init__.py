"""What can be said: models, their rules, and the pure difference between two of them."""
