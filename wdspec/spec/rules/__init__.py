"""Rules that look at more than one value: shares, scales, fields, batches, what is allowed."""
