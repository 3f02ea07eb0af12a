"""By which names a gateway may be called."""

import pytest

from horolog.gateway_process import LOOPBACK, hosts_of
from horolog.settings import GatewaySettings


def test_a_gateway_of_this_machine_is_called_by_this_machines_names() -> None:
    assert hosts_of(GatewaySettings()) == LOOPBACK
    assert hosts_of(GatewaySettings(names=("mine",))) == LOOPBACK | {"mine"}


def test_one_that_others_reach_is_called_by_any_name_unless_its_own_are_listed() -> None:
    assert hosts_of(GatewaySettings(host="0.0.0.0")) is None
    listed = hosts_of(GatewaySettings(host="0.0.0.0", names=("Jobs.Example", "::1")))
    assert listed is not None
    assert {"jobs.example", "[::1]", "localhost"} <= listed
    assert "evil.example" not in listed


@pytest.mark.parametrize("written", ["a, b,", '["a", "b"]'])
def test_names_are_written_with_commas_or_as_json(written: str) -> None:
    assert GatewaySettings.model_validate({"names": written}).names == ("a", "b")
