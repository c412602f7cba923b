"""What files may say, as JSON Schemas for editors: from the models."""
