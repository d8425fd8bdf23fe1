"""One S3 server that tests talk to."""

from __future__ import annotations

import http.client
import time
import urllib.parse
from dataclasses import dataclass, field

from .process import ServerProcess

# s3rver knows no other pair, so every server has this one.
ACCESS_KEY = "S3RVER"
SECRET_KEY = "S3RVER"
REGION = "us-east-1"

_READY_SECONDS = 30.0
_PAUSE_SECONDS = 0.02
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Server:
    """A running server. ``endpoint`` is ``http://127.0.0.1:PORT``; the other two are its credentials."""

    endpoint: str
    process: ServerProcess
    access_key: str = ACCESS_KEY
    secret_key: str = field(default=SECRET_KEY, repr=False)

    def bucket(self, name: str) -> str:
        """Create a bucket unless it exists; returns its name. Few buckets and many prefixes are cheapest."""
        status, said = self._signed("PUT", f"/{name}")
        if status != http.HTTPStatus.OK and b"BucketAlready" not in said:
            raise RuntimeError(f"{self.endpoint} answers {status} to the creation of bucket {name}: {said!r}")
        return name

    def url(self, bucket: str, prefix: str = "") -> str:
        """What ``open_store`` takes for this bucket, or for the keys under ``prefix/`` in it."""
        path = f"{bucket}/{prefix}" if prefix else bucket
        query = urllib.parse.urlencode({"endpoint": self.endpoint, "path_style": "true"}, safe=":/")
        return f"s3://{path}?{query}"

    def kill(self) -> None:
        """SIGKILL: what it has acknowledged must be there after :meth:`restart`."""
        self.process.kill()

    def restart(self) -> None:
        """Start it again on the same port and data, killed first if it runs; wait until it takes writes."""
        self.process.restart()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when an object can be written; raises when the process ended, or after 30 seconds."""
        until = time.monotonic() + _READY_SECONDS
        while not self._takes_writes():
            self.process.check()
            if time.monotonic() > until:
                raise RuntimeError(f"{self.endpoint} takes no writes after {_READY_SECONDS:.0f} seconds")
            time.sleep(_PAUSE_SECONDS)

    def _takes_writes(self) -> bool:
        try:
            self.bucket("ready")
            status, _ = self._signed("PUT", "/ready/ready")
        except (OSError, http.client.HTTPException, RuntimeError):
            return False
        return status == http.HTTPStatus.OK

    def _signed(self, method: str, path: str) -> tuple[int, bytes]:
        """Status and body of the answer to a request without a body."""
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        request = AWSRequest(method=method, url=self.endpoint + path, data=b"")
        S3SigV4Auth(Credentials(self.access_key, self.secret_key), "s3", REGION).add_auth(request)
        address = self.endpoint.removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, path, body=b"", headers=dict(request.headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
