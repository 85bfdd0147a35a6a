"""Azurite, Microsoft's emulator of Azure Blob Storage, which npm installs at the first use."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, by its documentation."""
VERSION = "2021-08-06"
HOME = Path(os.environ.get("AZURITE_HOME") or Path.home() / ".cache" / "peer-azurite")
RELEASE = "3.37.0"
INSTALL_LIMIT_S = 300.0
START_LIMIT_S = 60.0


def azurite() -> str:
    """Return the program, or skip the test."""
    folder = HOME / "node_modules" / ".bin"
    found = shutil.which("azurite-blob") or shutil.which("azurite-blob", path=str(folder))
    if found is None and (npm := shutil.which("npm")):
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(HOME), f"azurite@{RELEASE}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, timeout=INSTALL_LIMIT_S, check=False, capture_output=True)
        found = shutil.which("azurite-blob", path=str(folder))
    if found is None:
        pytest.skip(f"no azurite-blob in PATH or {folder}, and npm cannot install it")
    return found


class AzureServer:
    """A running Azurite with a container."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        self.container = f"lake-{uuid.uuid4().hex}"
        self.uri = f"abfss://{self.container}@{ACCOUNT}.dfs.core.windows.net"

    def make_container(self) -> None:
        """Create the container."""
        date = email.utils.formatdate(usegmt=True)
        resource = f"/{ACCOUNT}/{ACCOUNT}/{self.container}\nrestype:container"
        text = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{VERSION}\n{resource}"
        signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
        headers = {"x-ms-date": date, "x-ms-version": VERSION, "Content-Length": "0"}
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
        url = f"{self.endpoint}/{self.container}?restype=container"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)):
            pass


@contextlib.contextmanager
def azure_server(directory: Path) -> Iterator[AzureServer]:
    """Run Azurite, or skip the test where it is not installed."""
    program = azurite()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "--blobPort", str(port), "--location", str(directory), "--skipApiVersionCheck", "--silent"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        server = AzureServer(port)
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                server.make_container()
                break
            except urllib.error.URLError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait()
