"""The terminal: what is shown on it, how it is asked, and how it interrupts."""
