"""Compile the `*_cy` modules; everything else about the distribution is in pyproject.toml.

Without Cython or a C compiler the installation succeeds all the same: the `*_cy` modules then run as plain Python,
twenty to sixty times slower, and the wheel is tagged as pure. GREGOR_PURE_PYTHON=1 asks for that;
`gregor.protocol.records.kernel_cy.implementation()` returns which of the two is in use.

With GREGOR_COMPILE_FOR=broker only the modules that a broker alone in its cluster uses are compiled; those of clients,
the pipeline and replication stay plain Python until the next build.

Compiled modules are cached in build/compiled under a digest of flags, compiler and the files from which each of them is
compiled (its own, and .pxd and header files that these name), so that an installation compiles only modules that have
changed.
"""

import fcntl
import hashlib
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

RECORDS = Path("protocol/records")
ROOMS_WITH_COMPILED_MODULES = (
    RECORDS,
    *map(
        Path,
        (
            "protocol",
            "client/producer",
            "broker/server",
            "broker/api",
            "broker/replicas/fetching",
            "broker/replicas/replication",
            "storage/log",
        ),
    ),
)
CHECKSUMS = "crc_cy"
"""The one module that contains crc_simd.c; the others call its functions."""
SHARED_UTILITY = "gregor.protocol.records._cython_shared"
"""Cython's own code for memory views, which is compiled once here instead of once in each module."""
GENERATED = Path("build/cython")
COMPILED = Path("build/compiled")
# -g0: debugging symbols of generated C are not needed, and take a quarter of the compile time. Modules that cimport a
# header need not call all of its functions.
COMPILE_ARGS = ["-g0", "-Wno-unused-function"]
# Loops over bytes are in protocol/records. For steps of requests -O2 takes a sixth less time than -O3 and gives
# code as fast. The producer's modules, the largest, take half as long with -O1, and were measured to be no slower.
LOOPS, STEPS, CALLS = "-O3", "-O2", "-O1"
LEVELS = {RECORDS: LOOPS, Path("client/producer"): CALLS}
OF_OTHERS = re.compile(
    r"gregor\.(client|broker\.replicas)\..*|gregor\.protocol\.records\.(batching|client_records|columns|headers)_cy"
)
"""Names of modules that only clients, the pipeline and brokers with replicas use; no other module cimports them."""
RELATIVE_CIMPORT = re.compile(r"^\s*from\s+(\.+)(\w[\w.]*)\s+cimport\s", re.MULTILINE)
QUOTED_HEADER = re.compile(r"""^\s*(?:cdef extern from|#\s*include)\s+"([^"<>]+)\"""", re.MULTILINE)
FEWEST_FOR_PROCESSES = 4
"""The fewest modules whose translation is worth the start of processes."""
CYTHON_DIRECTIVES = {
    "language_level": 3,
    # The .pxd files declare the C types; the annotations in the sources are for mypy.
    "annotation_typing": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    # Methods for pickle would be a fifth of the code; nobody pickles these objects.
    "auto_pickle": False,
    # Comments with the source of each line would be a tenth of what the compiler reads.
    "emit_code_comments": False,
}


def say(text: str) -> None:
    """Write a line of progress, unbuffered: pip shows it with --verbose, `make` always."""
    print(f"gregor: {text}", file=sys.stderr, flush=True)


def has_compiler() -> bool:
    """Return whether a compiler and the header files of libc and Python are installed, by linking a module."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "")
    if not compiler:
        return False
    include = sysconfig.get_path("include")
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "probe.c"), Path(folder, "probe.so")
        source.write_text("#include <Python.h>\n")
        command = [*compiler, "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(target)]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False


def why_not_compiled() -> str | None:
    """Return the reason why the modules stay plain Python; None if they are to be compiled."""
    if os.environ.get("GREGOR_PURE_PYTHON"):
        return "GREGOR_PURE_PYTHON is set"
    try:
        from Cython import __version__ as cython_version
    except ImportError:
        return "there is no Cython"
    if tuple(int(part) for part in cython_version.split(".")[:2]) < (3, 1):
        return f"Cython {cython_version} is older than 3.1"
    if not has_compiler():
        return "there is no C compiler that finds Python.h"
    return None


def extensions() -> list[Extension]:
    """Return an extension for each `*_cy.py` and one for their shared code, or none if they stay plain Python."""
    if reason := why_not_compiled():
        say(f"{reason}, so the *_cy modules stay plain Python")
        return []
    sources = [source for room in ROOMS_WITH_COMPILED_MODULES for source in sorted(room.glob("*_cy.py"))]
    found = [Extension(".".join(("gregor", *source.with_suffix("").parts)), [str(source)]) for source in sources]
    found.append(Extension(SHARED_UTILITY, [str(RECORDS / "_cython_shared.c")]))
    for extension in found:
        extension.include_dirs = [str(RECORDS)]
        is_shared = extension.name == SHARED_UTILITY
        level = CALLS if is_shared else LEVELS.get(Path(extension.sources[0]).parent, STEPS)
        extension.extra_compile_args = [level, *COMPILE_ARGS]
    return found


def translators(module_count: int) -> int:
    """Return the number of processes for Cython, which cannot translate in threads; 0: none but this one."""
    if module_count < FEWEST_FOR_PROCESSES or "fork" not in multiprocessing.get_all_start_methods():
        return 0
    # Other start methods would run this file again.
    multiprocessing.set_start_method("fork", force=True)
    return os.cpu_count() or 0


def files_named_in(source: Path) -> Iterator[Path]:
    """Yield the files of this checkout that a source names: .pxd files that it cimports, header files that it includes.

    Headers are beside the file that names them or in protocol/records, the one folder that compilers search.
    """
    text = source.read_text(encoding="utf-8")
    for dots, module in RELATIVE_CIMPORT.findall(text):
        package = source.parents[len(dots) - 1]
        yield package.joinpath(*module.split(".")).with_suffix(".pxd")
    for header in QUOTED_HEADER.findall(text):
        beside = source.with_name(header)
        if beside.exists() or (RECORDS / header).exists():
            yield beside if beside.exists() else RECORDS / header


def sources_of(module: str) -> list[Path]:
    """Return the files from which a module is compiled, sorted: its .py, and all that it and they name, transitively.

    The shared code of Cython has none. Raises FileNotFoundError if its .pxd or one that is cimported does not exist.
    """
    if module == SHARED_UTILITY:
        return []
    own = Path(*module.split(".")[1:]).with_suffix(".py")
    found = {own}
    pending = [own, own.with_suffix(".pxd")]
    if own.stem == CHECKSUMS:
        pending.append(RECORDS / "crc_simd.c")
    while pending:
        source = pending.pop()
        named = set(files_named_in(source)) - found
        found |= {source, *named}
        pending += named
    return sorted(found)


@contextmanager
def only_build() -> Iterator[None]:
    """Wait until no other build of this checkout runs: they share folders of generated and compiled modules."""
    COMPILED.mkdir(parents=True, exist_ok=True)
    with (COMPILED / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def place(extension: Extension) -> Path:
    """Return the path in this checkout at which an editable installation has the compiled module."""
    return Path(
        *extension.name.split(".")[1:-1], extension.name.split(".")[-1] + sysconfig.get_config_var("EXT_SUFFIX")
    )


def replace_by_copy(source: Path, target: Path) -> None:
    """Copy a file over another in one step: a broker that runs keeps the module that it has mapped into memory."""
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copy2(source, unfinished)
    unfinished.replace(target)


@contextmanager
def package_under_its_name() -> Iterator[str]:
    """Provide a folder that contains this one as `gregor`, the name by which Cython finds the .pxd of a .py file."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "gregor").symlink_to(Path.cwd(), target_is_directory=True)
        yield folder


class CompileChanged(build_ext):
    """A `build_ext` that translates with Cython only when it runs, compiles what has changed and reports progress."""

    def build_extensions(self) -> None:
        """Compile the extensions. Raises CompileError if Cython or the compiler refuses a source."""
        with only_build():
            if os.environ.get("GREGOR_COMPILE_FOR") == "broker":
                left_out = [
                    one for one in self.extensions if OF_OTHERS.fullmatch(one.name) and not self.kept(one).exists()
                ]
                self.extensions = [extension for extension in self.extensions if extension not in left_out]
                for extension in left_out:
                    # Modules compiled from older sources do not fit the new ones of others.
                    place(extension).unlink(missing_ok=True)
            self.build_missing()

    def build_missing(self) -> None:
        """Compile the extensions that no earlier build has compiled, and copy the others."""
        from Cython.Build import cythonize

        changed = [extension for extension in self.extensions if not self.kept(extension).exists()]
        with package_under_its_name() as folder:
            translated = cythonize(
                changed,
                build_dir=str(GENERATED),
                compiler_directives=CYTHON_DIRECTIVES,
                include_path=[folder],
                shared_utility_qualified_name=SHARED_UTILITY,
                quiet=True,
                # Cython compares times, and does not look at the .pxd files of other packages; `kept` compares digests.
                force=True,
                nthreads=translators(len(changed)),
            )
        generated = {extension.name: extension.sources for extension in translated}
        for extension in changed:
            extension.sources = list(generated[extension.name])
            if extension.name.endswith(f".{CHECKSUMS}"):
                extension.sources.append(str(RECORDS / "crc_simd.c"))
        # The last module to be compiled should not be a large one, for which one process works alone.
        sizes = {one.name: sum(Path(source).stat().st_size for source in one.sources) for one in changed}
        self.extensions.sort(key=lambda extension: sizes.get(extension.name, 0), reverse=True)
        # distutils compares the times of files, which miss changes of flags and compilers; `kept` compares digests.
        self.force = True
        self.progress = threading.Lock()
        self.missing_count = len(changed)
        self.compiled_count = 0
        if self.missing_count:
            are_of_others = all(OF_OTHERS.fullmatch(extension.name) for extension in changed)
            meanwhile = ", those of clients and replicas, which run as plain Python until then" if are_of_others else ""
            count = f"{self.missing_count} of {len(self.extensions)} modules"
            say(f"{count} are to be compiled{meanwhile}: half a minute at most")
        super().build_extensions()

    def build_extension(self, extension: Extension) -> None:
        """Compile an extension, or copy the module that an earlier build compiled from the same source."""
        target, kept = Path(self.get_ext_fullpath(extension.name)), self.kept(extension)
        if kept.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_by_copy(kept, target)
            os.utime(target)
            return
        super().build_extension(extension)
        for older in COMPILED.glob(f"{extension.name}-*{sysconfig.get_config_var('EXT_SUFFIX')}"):
            older.unlink(missing_ok=True)
        replace_by_copy(target, kept)
        with self.progress:
            self.compiled_count += 1
            say(f"compiled {self.compiled_count} of {self.missing_count}: {extension.name}")

    def kept(self, extension: Extension) -> Path:
        """Return the path in the cache of a module compiled from these sources by this Cython and compiler.

        The digest leaves out the generated C, which contains paths that depend on where Cython is installed.
        """
        from Cython import __version__ as cython_version

        digest = hashlib.sha256(shlex.join([*self.compiler.compiler_so, *extension.extra_compile_args]).encode())
        digest.update(f"{cython_version} {CYTHON_DIRECTIVES}".encode())
        for source in sources_of(extension.name):
            # A .pxd that moves changes what its own cimports refer to.
            digest.update(f"{source} {source.stat().st_size}\n".encode())
            digest.update(source.read_bytes())
        return COMPILED / f"{extension.name}-{digest.hexdigest()[:16]}{sysconfig.get_config_var('EXT_SUFFIX')}"


PROJECT_URL = os.environ.get("GREGOR_PROJECT_URL", "").rstrip("/")
"""The address of the repository in a web browser; the release workflow sets it."""
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


def package_page() -> str:
    """Return the README for the page of a package index, which has none of the files that the README links to.

    The links lead to the repository, or become plain text if the repository's address is not set.
    """
    readme = Path("README.md").read_text(encoding="utf-8")
    return RELATIVE_LINK.sub(rf"[\1]({PROJECT_URL}/blob/main/\2)" if PROJECT_URL else r"\1", readme)


# setuptools warns of every editable installation, in a frame that reads like a traceback.
warnings.filterwarnings("ignore", message=r"\s*Editable installation")
setup(
    long_description=package_page(),
    long_description_content_type="text/markdown",
    project_urls={"Source": PROJECT_URL, "Changelog": f"{PROJECT_URL}/blob/main/CHANGELOG.md"} if PROJECT_URL else {},
    ext_modules=extensions(),
    cmdclass={"build_ext": CompileChanged},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
