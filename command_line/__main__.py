"""`python -m gregor.command_line`: the same as the program `gregor`."""

from . import main

raise SystemExit(main())
