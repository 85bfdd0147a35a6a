"""A replacement of the module ``cython`` for ``*_cy`` modules if Cython is not installed; its functions do nothing.

Such a module begins with ``try: import cython`` and otherwise imports this one; its C types are in the ``.pxd`` file,
so that the source is ordinary Python. Compiled modules import neither.
"""

from __future__ import annotations

from contextlib import nullcontext

compiled = False

nogil = nullcontext()
"""A context manager for loops that release the interpreter's lock when compiled."""
