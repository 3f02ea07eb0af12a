"""A process that stands still ends itself, so that another can do better."""

from tests.broker.scenarios.played import scenario
from tests.broker.scenarios.world import World, put, until

STUCK_EXIT = 70


@scenario()
def test_a_loop_that_is_stuck_ends_the_process_and_another_takes_its_partitions(
    world: World,
) -> None:
    stuck = world.scheduler("stuck", patch="get_stuck").await_owner()
    orders = world.topic()
    world.accepted(put("tick", orders, every="1s"))
    world.send(put("stuck", orders, command_id="stuck"))
    other = world.scheduler("other")
    assert stuck.await_end() == STUCK_EXIT
    assert stuck.events()[-1] == "stuck"
    other.await_owner()
    world.accepted(put("stuck", orders, command_id="stuck"))
    arrived = world.tail(orders, since_end=True)
    until(lambda: len(arrived.refresh()) >= 2, "fires", other)
