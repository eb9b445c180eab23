"""What is done with the fields of samples, and with those that cannot be read."""
