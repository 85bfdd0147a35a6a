"""Nothing but the optional compiled kernel; everything else is in pyproject.toml."""

from setuptools import setup

setup()
