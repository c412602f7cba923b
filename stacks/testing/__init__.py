"""Cases of a stack, played on the emulator by the real engine, and held against what they expect.

A case is one run in a process of its own. Cases that start from each other are a chain; chains are
played side by side.
"""
