"""AIStore clusters: gateways that redirect to targets, checksums, tokens, ETLs. Read `ais_store.py` first."""
