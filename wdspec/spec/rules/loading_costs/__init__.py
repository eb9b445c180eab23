"""Settings that cost more than they bring."""
