"""One cluster, and the clients made for it."""

from collections.abc import Callable

from ..crash import CrashPoint, unarmed
from .admin import Admin, KafkaOffsets, KafkaTopics
from .failures import Link
from .outbox import KafkaOutbox
from .ownership import KafkaOwnership
from .producer import KafkaTransactionalProducer
from .reader import KafkaReader
from .settings import ClientSettings, Settings


class KafkaLog:
    """Meets `streams.ports.Log`. `client_config` goes verbatim to every client and is never shown;
    only what promises rest on overrides it. Names are given to it in full, namespace included."""

    def __init__(
        self, bootstrap: str, client_config: Settings | None = None, crash: CrashPoint = unarmed
    ) -> None:
        self._settings = ClientSettings(bootstrap, client_config or {})
        self._crash = crash
        # Each of these has a client of its own: one that is renewed must not take others along.
        self._suspects = KafkaTopics(Admin(self._settings))

    def transactional(self, transactional_id: str) -> KafkaTransactionalProducer:
        link = Link(transactional_id)
        config = self._settings.transactional(transactional_id, link)
        return KafkaTransactionalProducer(config, link, self._suspects, self._crash)

    def outbox(self, client_id: str) -> KafkaOutbox:
        return KafkaOutbox(self._settings.outbox(client_id, Link(client_id)))

    def reader(self, client_id: str, *, committed: bool) -> KafkaReader:
        config = self._settings.reader(client_id, Link(client_id), committed=committed)
        return KafkaReader(config)

    def offsets(self) -> KafkaOffsets:
        return KafkaOffsets(Admin(self._settings))

    def topics(self) -> KafkaTopics:
        return KafkaTopics(Admin(self._settings))

    def ownership(
        self,
        group: str,
        topic: str,
        member: str,
        *,
        on_assigned: Callable[[list[int]], None],
        on_revoked: Callable[[list[int], bool], None],
    ) -> KafkaOwnership:
        link = Link(member)
        return KafkaOwnership(
            self._settings.member(group, member, link),
            link,
            Admin(self._settings),
            group,
            topic,
            member,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            crash=self._crash,
        )
