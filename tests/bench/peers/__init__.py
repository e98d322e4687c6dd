"""Headrace and its peers, the same prompts on the same machine in one run: ``make bench-peers``.

``__main__`` takes turns between the contenders of ``contenders``; each is brought up in a virtual environment of its
own (``install.sh``) on a folder that ``models`` makes, and measured as a server (``http_server``), inside its own
interpreter (``in_process``, with the drivers beside it), or through Headrace's whole stack (``ours``).
"""
