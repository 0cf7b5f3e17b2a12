"""Replay, pure: what of an oplog is visible, in which order it is consumed, and when it is over.

No I/O, no clock, no thread of its own: entries come through a function that reads a page.
"""
