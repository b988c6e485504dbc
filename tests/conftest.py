import pytest
from hypothesis import settings

from minigraph.errors import MissingExtraError, PlaceError
from minigraph.place import CUDAPlace

# How long an example takes depends on what else the machine does.
settings.register_profile("minigraph", deadline=None)
settings.load_profile("minigraph")


@pytest.fixture(scope="session")
def cuda_place():
    """The first GPU; a test that asks for it is skipped where there is none."""
    place = CUDAPlace(0)
    try:
        _ = place.xp
    except (MissingExtraError, PlaceError) as error:
        pytest.skip(f"needs a GPU: {error.message}")
    return place
