"""Ends of time: what expires, what runs by hours, and the plan of just these."""
