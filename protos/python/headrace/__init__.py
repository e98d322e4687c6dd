"""Headrace's client distribution: the stubs (``headrace.v1``), ``headrace.client`` and the command line.

``headrace.internal.v1`` rides along for Headrace's own services; it is not for callers.
"""
