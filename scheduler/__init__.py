"""Leads partitions: what waits, what joins which worker, what is logged, and how each request ends.

``loop.py`` is the table of contents.
"""
