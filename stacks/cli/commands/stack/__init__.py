"""Commands about stacks as a whole: made, selected, exported, logged in to, told of."""
