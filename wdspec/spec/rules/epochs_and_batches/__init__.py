"""Epochs, batches and shuffles whose numbers do not fit each other."""
