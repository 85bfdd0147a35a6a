"""What the ``*_cy`` modules need of Cython where Cython is not installed: nothing that does anything.

Such a module begins with ``try: import cython`` and falls back to this one; its C types are in the ``.pxd`` file
beside it, so that the source is ordinary Python. Compiled, neither is imported.
"""

from __future__ import annotations

from contextlib import nullcontext

compiled = False

nogil = nullcontext()
"""Around loops that release the interpreter's lock when compiled."""
