"""Price the resource usage of stacks with the project's price book, and sum the costs."""
