"""`python -m gpuform.stacks.cli`, where the console script is not on the path."""

from gpuform.stacks.cli import main

if __name__ == "__main__":
    main()
