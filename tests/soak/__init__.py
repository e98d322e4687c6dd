"""Soak: one engine on a tiny pool for as long as one likes, everything at once and at random, checked token by token.

bodies    what is asked for: drawn once, and what each answers undisturbed
run       arrivals, cancels, deadlines, returns, new sessions; each output against the undisturbed one
"""
