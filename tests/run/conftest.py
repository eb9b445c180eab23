"""Fixtures of the tests of loaders."""

import pytest
from torch.utils.data import _utils


@pytest.fixture(scope="module")
def impatient_torch():
    """After an error, torch's own loader waits five seconds for each of its workers before it ends them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.3)
        yield
