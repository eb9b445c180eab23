"""The oracle: an independent reader in plain Python, and recorded batches of specs that cover every feature."""
