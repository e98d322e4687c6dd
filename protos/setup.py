"""Keeps what a build leaves behind out of the checkout: `pip install ./protos` builds in place."""

import atexit
import shutil
import sys
import tempfile

from setuptools import setup

scratch = tempfile.mkdtemp(prefix="headrace-build-")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
# An editable install keeps pointing at its metadata's folder in some versions of pip, so that one stays where it is.
is_editable = any("editable" in argument or argument == "develop" for argument in sys.argv)
options = {"build": {"build_base": scratch}}
if not is_editable:
    options["egg_info"] = {"egg_base": scratch}
setup(options=options)
