"""Decide what expires, starts and stops by time, and plan exactly these changes."""
