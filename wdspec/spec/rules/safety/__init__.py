"""What runs code: refused unless the spec allows it, and always where WDS_SECURE forbids it."""
