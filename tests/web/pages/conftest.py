"""A browser for the tests of each page; each module serves its own workbench."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.served import Served, browser_page, forget_entries


@pytest.fixture(scope="module")
def signed_in(served: Served) -> Iterator[Any]:
    """A page that is signed in, for all tests of a module."""
    with browser_page(served) as page:
        yield page


@pytest.fixture
def browser(signed_in: Any) -> Any:
    """
    The page at an address without scripts, with nothing typed.

    A change of the part after "#" alone would leave the earlier test's page there while its own
    loads, and a file given to it would be lost.
    """
    signed_in.set_viewport_size({"width": 1280, "height": 900})
    forget_entries(signed_in)
    return signed_in
