"""The durable services of one executor that host functions call."""

import msgspec

from executor.services.blobs import Blobs
from executor.services.keyvalue import KeyValue
from executor.services.promises import Promises


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    promises: Promises
    keyvalue: KeyValue
    blobs: Blobs
