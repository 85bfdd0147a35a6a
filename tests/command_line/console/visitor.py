"""A visitor of the console without a browser: asks for pages, follows redirections, sends forms with their token."""

from __future__ import annotations

import http.client
import re
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.broker_process import BrokerProcess
from tests.waiting import PATIENCE_S, wait_until

CONSOLE = "gregor.console.listeners=http://127.0.0.1:0"
ADDRESS = re.compile(r"console at http://\S+:(\d+)")
TOKEN = re.compile(r'name="token" value="([^"]+)"')


@dataclass(frozen=True)
class Answer:
    """An answer of the console."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The page."""
        return self.body.decode()


@dataclass
class Visitor:
    """A visitor of one console."""

    port: int
    token: str = ""

    def get(self, path: str, **headers: str) -> Answer:
        """Ask for a page."""
        return self.ask("GET", path, headers=headers)

    def page(self, path: str) -> str:
        """Return the text of a page that must be there."""
        answer = self.get(path)
        assert answer.status == 200, answer.text
        return answer.text

    def send(self, path: str, **fields: str) -> Answer:
        """Send a form as one of the console's pages does, and follow the redirection."""
        if not self.token:
            found = TOKEN.search(self.page("/topics"))
            assert found is not None
            self.token = found[1]
        answer = self.post(path, {"token": self.token, **fields}, {"Origin": f"http://127.0.0.1:{self.port}"})
        return self.get(answer.headers["location"]) if answer.status == 303 else answer

    def post(self, path: str, fields: dict[str, str], headers: dict[str, str]) -> Answer:
        """Send a form with these headers."""
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(fields).encode(), {**form, **headers})

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """Send one request and return the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, answer.read())


def visitor_of(broker: BrokerProcess) -> Visitor:
    """Return a visitor of the console that a broker was started with."""
    wait_until(lambda: ADDRESS.search(broker.output()) is not None)
    found = ADDRESS.search(broker.output())
    assert found is not None
    return Visitor(int(found[1]))
