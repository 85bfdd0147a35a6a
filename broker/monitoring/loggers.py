"""Levels of the broker's loggers, by Kafka's names, readable and settable at run time (KIP-412)."""

from __future__ import annotations

import logging

ROOT = "root"
OWN = (__name__.partition(".")[0], "kafka")
"""The first parts of the broker's loggers: its package, and Kafka's name for the audit log of the authorizer."""

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def logger_levels() -> dict[str, str]:
    """Return the level of each of the broker's loggers, and of the root logger."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in OWN]
    return {name: _name_of(_logger(name).getEffectiveLevel()) for name in [ROOT, *sorted(names)]}


def set_level(name: str, level: str) -> None:
    """Set a logger's lowest level to ``level``, one of LEVELS."""
    _logger(name).setLevel(LEVELS[level])


def reset_level(name: str) -> None:
    """Reset a logger to the level of its parent."""
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _name_of(level: int) -> str:
    return next((name for name, lowest in LEVELS.items() if level >= lowest), "TRACE")
