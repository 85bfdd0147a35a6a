"""`gregor completion`: the script that completes commands and options of gregor in a shell."""

from __future__ import annotations

import argparse

from .asking import run_tool, say

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
examples:
  gregor completion bash > ~/.local/share/bash-completion/completions/gregor
  gregor completion zsh > "${fpath[1]}/_gregor"
  gregor completion fish > ~/.config/fish/completions/gregor.fish
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "completion",
        help="print the completion script of a shell",
        epilog=EXAMPLES,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    # Only this command needs these.
    import shtab

    from . import COMMANDS, build_parser

    return run_tool(lambda: say(shtab.complete(build_parser(list(COMMANDS)), shell=arguments.shell)))
