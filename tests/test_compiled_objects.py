"""Objects of compiled classes: a copy or pickle that would lose C values is refused, as Cython makes no methods."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from gregor.protocol.plain_produce_cy import PlainProduce
from gregor.protocol.records.kernel_cy import DownConversion, implementation
from gregor.storage.log.plain_reading_cy import PlainReader


@pytest.mark.skipif(implementation() != "compiled", reason="the *_cy modules are plain Python here")
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("compiled_class", [PlainProduce, DownConversion, PlainReader])
def test_an_object_of_a_compiled_class_is_not_copied(compiled_class: Any, copied: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="pickle"):
        copied(compiled_class.__new__(compiled_class))
