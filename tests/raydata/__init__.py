"""Tests of Ray Data and of actors, which share a cluster: a package, so that it ends with the folder."""
