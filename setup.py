"""Nothing but the optional compiled modules; everything else is in pyproject.toml.

Without Cython or a C compiler the installation succeeds all the same and the pure Python twins of the `*_cy` modules
do the work, twenty to sixty times slower; `gregor.protocol.records.kernel_cy.implementation()` tells which is running.
GREGOR_PURE_PYTHON=1 asks for that.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup

RECORDS = Path("protocol/records")
ROOMS_WITH_COMPILED_MODULES = (RECORDS, Path("client/producer"))
CYTHON_DIRECTIVES = {
    "language_level": 3,
    # The .pxd files say what is what; the annotations in the sources are for mypy.
    "annotation_typing": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
}


def compiled_modules() -> list[Extension]:
    """An extension for each `*_cy.py`, or none if they cannot or shall not be compiled."""
    if os.environ.get("GREGOR_PURE_PYTHON"):
        return []
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        print("gregor: no Cython, so the compiled modules stay pure Python", file=sys.stderr)
        return []
    extensions = [
        Extension(
            ".".join(("gregor", *source.with_suffix("").parts)),
            [str(source), str(RECORDS / "crc_simd.c")],
            include_dirs=[str(RECORDS)],
            depends=[str(header) for header in RECORDS.glob("*.h")],
            extra_compile_args=["-O3"],
        )
        for room in ROOMS_WITH_COMPILED_MODULES
        for source in sorted(room.glob("*_cy.py"))
    ]
    try:
        # Cython looks for the .pxd beside a .py under the package's name, which the folder of a checkout rarely has.
        with TemporaryDirectory() as folder:
            (Path(folder) / "gregor").symlink_to(Path.cwd(), target_is_directory=True)
            compiled = cythonize(extensions, compiler_directives=CYTHON_DIRECTIVES, include_path=[folder])
    except CompileError:
        print("gregor: this Cython cannot compile these modules, they stay pure Python", file=sys.stderr)
        return []
    for extension in compiled:
        # A machine without a C compiler installs what it can. (Cython forgets this flag if it is set before.)
        extension.optional = True
    return list(compiled)


setup(ext_modules=compiled_modules(), options={"build_ext": {"parallel": os.cpu_count()}})
