"""A browser for the tests of each page; each module serves its own workbench."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.served import Served, browser_page


@pytest.fixture(scope="module")
def browser(served: Served) -> Iterator[Any]:
    """A page that is signed in, for all tests of a module."""
    with browser_page(served) as page:
        yield page
