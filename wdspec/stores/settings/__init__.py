"""What stores are told about servers: plain values, read once in the parent process and sent to the workers.

In go environment variables and the keys of a spec, out come frozen settings. Read `ais_cluster.AisCluster` first.
"""
