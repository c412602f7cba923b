"""What an operation works on: a project, its stack, and the world that it lives in."""
