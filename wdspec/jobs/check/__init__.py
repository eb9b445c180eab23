"""Data looked at before it is trained on: `wdspec check`."""
