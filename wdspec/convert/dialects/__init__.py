"""One file for each tool: how its file is recognised, and what of it a spec can say.

Nothing here knows another dialect but `energon.py`, whose metadatasets name prepared folders.
"""
