"""``python -m gregor``: the program `gregor`, where scripts of the environment are not on the PATH."""

from .command_line import main

raise SystemExit(main())
