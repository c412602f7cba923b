"""What a topology file may say, for editors and for readers: both from the models."""
