"""The errors of Spark in one line: the actual fault, from pages of Java and Python tracebacks."""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import PipelineError
from .session import NoJavaError

_OURS = re.compile(r"^(?:[^\n]*: )?gregor\.[\w.]+Error: (.+)$", re.MULTILINE)
"""The end of a task's traceback where the task raised an error of this package, whose message is complete."""
_PYTHON = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): (?!Traceback).+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z_.]+\] ")
"""Spark's name of an error, before its message."""


class Complaint(NamedTuple):
    """A line for the user, and whether Spark's log may have details."""

    line: str
    is_all: bool


def complaint_of(fault: BaseException) -> Complaint | None:
    """Return the message of an error of this package or of Spark; None for any other error."""
    if isinstance(fault, PipelineError | NoJavaError):
        return Complaint(str(fault), is_all=True)
    try:
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException
    except ImportError:
        return None
    if not isinstance(fault, Py4JError | PySparkException):
        return None
    text = str(fault)
    if found := _OURS.search(text):
        return Complaint(found[1], is_all=True)
    if "Traceback (most recent call last)" in text and (raised := _PYTHON.findall(text)):
        return Complaint(str(raised[0]), is_all=False)
    if isinstance(fault, Py4JJavaError):
        text = str(fault.java_exception.toString())
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(fault).__name__)
    return Complaint(_CONDITION.sub("", re.sub(r"^(?:\w+\.)+\w+: ", "", first)), is_all=False)
