import pytest

pytest.importorskip("tensorflow")

from keras_transformer.training.backends.workers import Workers  # noqa: E402
from keras_transformer.training.config import RecipeConfig  # noqa: E402


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"xla": True}, "`recipe.xla` must not be true for several workers. Received: xla=True"),
        (
            {"steps_per_execution": 2},
            "`recipe.steps_per_execution` must be 1 for several workers. Received: steps_per_execution=2",
        ),
    ],
)
def test_what_several_workers_cannot_do(options, message):
    workers = Workers.__new__(Workers)  # A whole one waits for the others.
    workers.require_possible(RecipeConfig())
    with pytest.raises(ValueError, match=message):
        workers.require_possible(RecipeConfig(**options))
