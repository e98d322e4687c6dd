"""Builds the CPU kernels. Everything else about the package is in pyproject.toml.

The kernels are a plain shared library, compiled once for each instruction set in seconds and without torch. Where there
is no C++ compiler the package installs without them, and the worker says at its start that it runs without them.

A wheel holds the library beside its package. An editable installation keeps it in the environment, since nothing that is
built belongs among the sources.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

SOURCES = Path("worker/kernels/src")
# In an environment's folder, where `worker.kernels.library` looks too.
EDITABLE = Path("lib/headrace")
# Contraction is off, so that the compiler never decides where a product and a sum are rounded once or twice.
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread"]
WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wno-ignored-attributes",
    "-Wno-maybe-uninitialized",
    "-Wno-uninitialized",
]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"]
FOR_X86 = {
    "isa_avx2": AVX2,
    "isa_avx512vnni": AVX512,
    "isa_avx512bf16": [*AVX512, "-mavx512bf16"],
}


class BuildKernels(build_ext):
    """Compiles each file with the flags of its instruction set."""

    def build_extension(self, ext: Extension) -> None:
        """Build the library; CompileError when there is no compiler or it cannot."""
        compiler = self._compiler()
        objects = Path(self.build_temp)
        objects.mkdir(parents=True, exist_ok=True)
        on_x86 = platform.machine() in {"x86_64", "AMD64"}
        flags = [*FLAGS, *WARNINGS, *os.environ.get("CXXFLAGS", "").split()]
        flags += [f'-DHK_SOURCES="{sources_digest()}"', *(["-DHK_X86"] if on_x86 else [])]
        built = []
        for source in sorted(SOURCES.glob("*.cpp")):
            if source.stem in FOR_X86 and not on_x86:
                continue
            out = objects / f"{source.stem}.o"
            extra = FOR_X86.get(source.stem, [])
            self._run([compiler, *flags, *extra, "-c", str(source), "-o", str(out)])
            built.append(str(out))
        library = Path(self.get_ext_fullpath(ext.name))
        library.parent.mkdir(parents=True, exist_ok=True)
        self._run([compiler, "-shared", *flags, *built, "-o", str(library)])

    def copy_extensions_to_source(self) -> None:
        """Editable: what `data` of the wheel holds is installed into the environment, and removed with it."""
        if not self.editable_mode:
            super().copy_extensions_to_source()
            return
        folder = Path(self.get_finalized_command("install").install_data) / EDITABLE
        for ext in self.extensions:
            library = Path(self.build_lib) / self.get_ext_filename(self.get_ext_fullname(ext.name))
            if library.exists():
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy2(library, folder / library.name)

    def _compiler(self) -> str:
        for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
            path = shutil.which(name) if name else None
            if path:
                return path
        raise CompileError("no C++ compiler was found")

    def _run(self, command: list[str]) -> None:
        try:
            subprocess.run(command, check=True)  # noqa: S603  # the compiler, and files of this folder
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(str(error)) from error


def sources_digest() -> str:
    """Names the sources, so that a test can tell whether a library was built from them."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parent / SOURCES).iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    setup(
        ext_modules=[
            Extension(
                "worker.kernels._native",
                sorted(str(path) for path in SOURCES.glob("*.cpp")),
                depends=sorted(str(path) for path in SOURCES.glob("*.h")),
                optional=True,
            )
        ],
        cmdclass={"build_ext": BuildKernels},
    )
