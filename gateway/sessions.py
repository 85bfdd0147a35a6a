"""The connections of clients, each with its own links to brokers upstream: order, quotas and client ids are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ..broker.server.client_census import ClientCensus
from ..broker.server.client_connection import ClientConnection, Hangup
from ..protocol.messages.fetch import FetchPartition
from ..storage.clock import Clock
from .link import Link
from .offered import VersionRange
from .replayed_login import MECHANISMS, ReplayedLogin
from .stream import LinkLostError
from .upstream import UnreachableError, Upstream

Place = tuple[str, int]


class Ahead(Protocol):
    """A fetch that was sent before the client has asked for it (`fetching.ahead.FetchAhead`)."""

    def uses(self, link: Link) -> bool:
        """Return whether its answer arrives on this link."""

    async def read(self, hangup: Hangup) -> None:
        """Read the answer, so that the link can be used."""

    def drop(self) -> None:
        """Discard it."""


class Session:
    """A client's connection and its links; requests of one client never share a link with those of another."""

    def __init__(self, client: ClientConnection, upstream: Upstream, bound_node: int | None) -> None:
        """Serve a client that has connected to the port of broker ``bound_node``; None for the cluster's address."""
        self.client = client
        self.bound_node = bound_node
        self._upstream = upstream
        self._links: dict[int, Link] = {}
        self._home: Link | None = None
        self._is_over = False
        self._fetches = -1
        self._skipped: dict[Place, tuple[int, int]] = {}
        """Offsets that the client fetches from, and the offsets where its fetches begin instead."""
        self.raw_tokens = 0
        """The number of frames that are tokens of a SASL exchange, without a header."""
        self.is_logged_in = False
        """Whether a SASL exchange was passed on, so that the client's link cannot be replaced."""
        self._has_lost_login = False
        self.mechanism = ""
        """The mechanism of the exchange that was passed on."""
        self._login: ReplayedLogin | None = None
        """The login that is repeated at further brokers, if it can be repeated."""
        self.ahead: Ahead | None = None
        """The fetch that was sent before the client has asked for it, if the client's fetches are converted."""
        self.on_end: Callable[[], None] | None = None
        """Releases what the present answer holds; called when the client disconnects, or with its next request."""

    def pass_over(self, asked: Mapping[Place, FetchPartition]) -> None:
        """Let a fetch begin behind batches that were found to hold no record for the client."""
        for place, part in asked.items():
            skipped = self._skipped.pop(place, None)
            if skipped is not None and skipped[0] == part.fetch_offset:
                self._skipped[place] = skipped
                part.fetch_offset = skipped[1]

    def skip(self, empty: Mapping[Place, int], asked: Mapping[Place, FetchPartition]) -> None:
        """Remember the next offset behind batches without a record, until the client fetches from another offset."""
        for place, next_offset in empty.items():
            part = asked[place]
            first_offset, begin = self._skipped.get(place, (part.fetch_offset, part.fetch_offset))
            self._skipped[place] = (first_offset if begin == part.fetch_offset else part.fetch_offset, next_offset)
            part.fetch_offset = next_offset

    def next_first(self) -> int:
        """Return the number of the partition that the next fetch asks for first: each gets its turn."""
        self._fetches += 1
        return self._fetches

    @property
    def only_node(self) -> int | None:
        """The broker that gets all requests of this client: that of its port, or the only one of the cluster."""
        if self.bound_node is not None:
            return self.bound_node
        brokers = self._upstream.brokers
        return next(iter(brokers)) if len(brokers) == 1 else None

    def link_now(self, node: int) -> Link | None:
        """Return the link to a broker if it exists and takes a request without waiting."""
        link = self._links.get(node)
        return link if link is not None and link.takes_requests_now else None

    async def link(self, node: int) -> Link:
        """Return the link to a broker; make it if necessary. Raises UnreachableError."""
        if self._has_lost_login:
            raise UnreachableError("the broker has ended the connection that the client's login was passed on to")
        link = self._links.get(node)
        if link is not None:
            await self._wait_for_ahead(link)
            link = self._links.get(node)
        return await self._dialled(await self._upstream.dial(node, self._lost)) if link is None else link

    async def home(self) -> Link:
        """Return a link for requests that any broker answers. Raises UnreachableError."""
        node = self.only_node
        if node is not None:
            return await self.link(node)
        if self._home is not None:
            await self._wait_for_ahead(self._home)
        if self._home is None:
            any_link = next(iter(self._links.values()), None)
            self._home = any_link or await self._dialled(await self._upstream.dial_any(self._lost))
        return self._home

    async def versions(self) -> Mapping[int, VersionRange]:
        """Return the versions that the client's broker serves, or that all brokers of the cluster do.

        Raises UnreachableError.
        """
        home = await self.home()
        return home.offered if self.only_node is not None else self._upstream.common_versions or home.offered

    def release(self) -> None:
        """Release what the present answer holds."""
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def end(self) -> None:
        """Close all links, as the client has disconnected."""
        self._is_over = True
        self.release()
        if self.ahead is not None:
            self.ahead.drop()
        for link in list(self._links.values()):
            link.close()
        self._links.clear()

    def logged_in(self, token: bytes) -> None:
        """Note the token of an exchange that a broker has accepted."""
        self.is_logged_in = True
        if self.mechanism in MECHANISMS:
            self._login = ReplayedLogin(self.mechanism, token, self.client.client_id)
            # Sessions at other brokers end with their former token (KIP-368).
            for link in list(self._links.values()):
                if link is not self._home and self.only_node is None:
                    link.lose()

    async def _dialled(self, link: Link) -> Link:
        """Keep a new link, once it is authenticated as the client. Raises UnreachableError and ClientGoneError."""
        self._keep(link)
        if self._login is not None:
            try:
                await self._login.log_in(link, self.client.hangup)
            except LinkLostError as error:
                raise UnreachableError(str(error)) from error
        return link

    async def _wait_for_ahead(self, link: Link) -> None:
        """Let the answer to a fetch that was sent ahead arrive before other requests use its link."""
        if self.ahead is not None and self.ahead.uses(link):
            await self.ahead.read(self.client.hangup)

    def _keep(self, link: Link) -> Link:
        if self._is_over:
            link.close()
            raise UnreachableError("the client has disconnected")
        self._links[link.node] = link
        return link

    def _lost(self, link: Link) -> None:
        if self._links.get(link.node) is link:
            del self._links[link.node]
        if self._home is link:
            self._home = None
        self._has_lost_login = self.is_logged_in and self._login is None


class Sessions(ClientCensus):
    """A census of clients that also holds the session of each connected client."""

    def __init__(
        self,
        clock: Clock,
        max_clients: int,
        upstream: Upstream,
        bound_node: Callable[[ClientConnection], int | None],
    ) -> None:
        """Take ``bound_node``, which returns the broker whose port a client has connected to, or None."""
        super().__init__(clock, max_clients)
        self._upstream = upstream
        self._bound_node = bound_node
        self._sessions: dict[ClientConnection, Session] = {}

    def connected(self, client: ClientConnection) -> None:
        """Record a client's new connection and begin its session."""
        super().connected(client)
        self._sessions[client] = Session(client, self._upstream, self._bound_node(client))

    def disconnected(self, client: ClientConnection) -> None:
        """Record the end of a client's connection and end its session."""
        super().disconnected(client)
        self._sessions.pop(client).end()

    def session(self, client: ClientConnection) -> Session:
        """Return the session of a connected client."""
        return self._sessions[client]
