"""Names of topics and groups that an admin client is given."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.client.admin.base import check_names


@pytest.mark.parametrize("names", ["orders", b"orders", 5, None, [b"orders"], [5]])
def test_a_single_name_is_not_taken_for_its_letters(names: Any) -> None:
    """`delete_topics("ab")` would delete the topics a and b."""
    with pytest.raises(TypeError, match="name"):
        check_names(names)


def test_names_from_any_iterable_are_accepted() -> None:
    assert check_names(name for name in ("orders", "visits")) == ["orders", "visits"]
