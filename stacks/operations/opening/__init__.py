"""Select and open a stack in the right environment, emulator and interpreter."""
