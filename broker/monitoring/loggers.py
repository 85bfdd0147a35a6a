"""Levels of the broker's loggers, by Kafka's names for them, to be seen and set at run time (KIP-412)."""

from __future__ import annotations

import logging

ROOT = "root"
PACKAGE = __name__.partition(".")[0]

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def logger_levels() -> dict[str, str]:
    """The level of each of our loggers, and of the root of all."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == PACKAGE]
    return {name: _name_of(_logger(name).getEffectiveLevel()) for name in [ROOT, *sorted(names)]}


def set_level(name: str, level: str) -> None:
    """Let a logger tell what is of ``level``, one of LEVELS, or more."""
    _logger(name).setLevel(LEVELS[level])


def reset_level(name: str) -> None:
    """Let a logger do again as the one above it does."""
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _name_of(level: int) -> str:
    return next((name for name, lowest in LEVELS.items() if level >= lowest), "TRACE")
