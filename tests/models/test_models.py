"""The models hold, and each breaks without one of its defences. The long tests explore them within
their full bounds."""

import pytest

from tests.models.checking import Model, Variant, check, java
from tests.models.models import MODELS, TAKE_OVER

STATES_MIN = 100_000

pytestmark = pytest.mark.skipif(java() is None, reason="TLC needs a Java on the path")


def test_taking_over_holds_within_small_bounds() -> None:
    result = check(TAKE_OVER, TAKE_OVER.small, timeout_s=120)
    assert result.complete, result.output
    assert result.distinct > 1_000


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.spec)
def test_the_model_holds(model: Model) -> None:
    result = check(model, {}, timeout_s=1_100)
    assert result.complete, result.output
    assert result.distinct >= STATES_MIN


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("model", "variant"),
    [
        pytest.param(model, variant, id=variant.name.replace(" ", "-"))
        for model in MODELS
        for variant in model.variants
    ],
)
def test_the_model_breaks_without_this_defence(model: Model, variant: Variant) -> None:
    result = check(model, variant.constants, timeout_s=500)
    assert result.broken == variant.breaks, result.output
