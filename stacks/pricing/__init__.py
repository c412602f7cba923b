"""Price the resource usage of stacks with the project's price book, and sum the costs.

`price_book` reads prices.yaml, `costs` prices and sums, `usage` computes the usage of resources,
and `plan_costs` adds usage and costs to plans.
"""
