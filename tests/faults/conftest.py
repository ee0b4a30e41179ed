"""The undisturbed run that the fault and distributed tests compare with."""

import pytest
from campaign import finish, start


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    finish(start(workdir))
    return workdir
