"""Values of the component model that Python has no type for.

Everything else is plain Python: ints, floats, `bool`, `str`, `bytes` for `list<u8>`, lists, tuples;
a record is a dict by field name, flags a list of names, an enum its name, an option `None` or the
value, a handle an int.
"""

import msgspec


class Ok(msgspec.Struct, frozen=True):
    """The ok case of a `result`."""

    value: object = None


class Err(msgspec.Struct, frozen=True):
    """The error case of a `result`."""

    value: object = None


class Some(msgspec.Struct, frozen=True):
    """A present option whose payload is an option itself; elsewhere the value stands bare."""

    value: object


class Variant(msgspec.Struct, frozen=True):
    """One case of a `variant`."""

    case: str
    payload: object = None
