"""Measuring: load client, raw records, metrics, acceptance, statistics."""

# Part of every cell's key. Raise it when a change to the client or the session alters what a number means.
MEASURING_VERSION = 1
