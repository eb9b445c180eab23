"""HTTP servers: kept-alive connections, ranges, redirects, proxies, logins.

Read `http_store.py` first; `exchange.py` is shared with AIStore.
"""
