"""Downloads a blob into memory for every tuple, from the HTTP server that PENSTOCK_BLOB_URL names.

`penstock.workloads.blob_server` is such a server, with the delay and the bandwidth of a cloud service. Every thread
keeps one connection open.
"""

from __future__ import annotations

import http.client
import os
from typing import Any
from urllib.parse import quote, urlsplit
from zlib import crc32

from penstock.dataflow.logic import Logic
from penstock.errors import BadInputError, PenstockError
from penstock.workloads.incoming import number_of

BLOB_URL = "PENSTOCK_BLOB_URL"
"""Environment variable: the address of the server, http://host:port."""

TIMEOUT = 60.0
"""Seconds without a byte after which a download has failed."""


class BlobClient:
    """A connection that is kept, and made again if the server has closed it in the meantime."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise BadInputError(f"{BLOB_URL}: expected http://host:port, found '{url}'")
        self._url = url
        self._folder = parts.path.rstrip("/")
        # a slot is a machine of its own to the store
        self._headers = {"X-Client": str(os.getpid())}
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)

    def download(self, name: str) -> bytes:
        fresh = self._connection.sock is None
        try:
            try:
                return self._get(name)
            except ConnectionError:
                # an idle connection may be closed by the server at any time; a new one says whether the server is there
                if fresh:
                    raise
                self._connection.close()
                return self._get(name)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise PenstockError(f"no blob from {self._url} ({BLOB_URL}): {reason}") from error

    def _get(self, name: str) -> bytes:
        self._connection.request("GET", f"{self._folder}/blobs/{quote(name, safe='')}", headers=self._headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"blob '{name}': {response.status} {response.reason}")
        return content

    def close(self) -> None:
        self._connection.close()


def open_client() -> BlobClient:
    url = os.environ.get(BLOB_URL)
    if not url:
        raise BadInputError(f"{BLOB_URL} is not set; start a server with python -m penstock.workloads.blob_server")
    return BlobClient(url)


def close_client(client: BlobClient) -> None:
    client.close()


def download_blob(row: dict[str, Any], client: BlobClient) -> dict[str, Any]:
    value = number_of(row)
    content = client.download(str(value))
    return {"value": value, "size": len(content), "checksum": crc32(content)}


azure_blob = Logic(
    download_blob, schema="value bigint, size bigint, checksum bigint", open=open_client, close=close_client
)
