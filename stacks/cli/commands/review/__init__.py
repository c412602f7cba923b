"""Commands about saved plans and those who decide on them."""
