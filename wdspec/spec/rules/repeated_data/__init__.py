"""Data that is read twice, or in training and validation alike."""
