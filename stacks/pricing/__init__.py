"""What stacks cost: footprints priced by the project's price book, and summed."""
