"""The step loop: which sequences are computed together, with which blocks, and how each ends. Begins at `engine.py`."""
