"""What a worker may reach of the network: nothing, but what a rule allows.

| rule                       | allows                                                              |
|----------------------------|---------------------------------------------------------------------|
| `example.com`              | that name, at any port; with `:443` or `:8000-8099` only there      |
| `*.example.com`            | every name under it, and not itself                                 |
| `*`                        | every name and every public address                                 |
| `203.0.113.7`, `[::1]:80`  | one address                                                         |
| `10.0.0.0/8`, `[fd00::/8]` | a range of addresses                                                |

- A name is looked up only if a rule of names allows it: what is asked of a name server is seen by
  others too. What it leads to is checked again, and the very address that was checked is connected
  to: a name that leads elsewhere a moment later gains nothing.
- Loopback, link-local, private, shared, multicast and reserved addresses (RFC 6890) need a rule
  that names them: their address, or a range that lies within theirs. `*`, `0.0.0.0/0` and a public
  name do not. A name that cannot be public (`localhost`, `db`, `db.internal`) names what it leads
  to.
- An IPv6 address that stands for one of IPv4 (mapped, or NAT64) is that one.

Pure: nothing is looked up here.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, Self

import msgspec

from executor.errors import InternalError, UsageError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PORT_MAX: Final = 65_535
REMEMBERED_MAX: Final = 1_024
NAME_CHARACTERS_MAX: Final = 253
LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
BRACKETED: Final = re.compile(r"\[([^\[\]]*)\](?::(.*))?")
ANY: Final = "*"

SPECIAL: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("loopback", ("127.0.0.0/8", "::1/128")),
    ("link-local", ("169.254.0.0/16", "fe80::/10")),
    ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")),
    ("shared", ("100.64.0.0/10",)),
    ("unspecified", ("0.0.0.0/8", "::/128")),
    ("multicast", ("224.0.0.0/4", "ff00::/8")),
    (
        "reserved",
        (
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
            *("::/3", "4000::/2", "8000::/1"),  # all but 2000::/3, which public ones are out of
        ),
    ),
)
"""What is not public, by RFC 6890 and IANA's registries of special addresses; the first that holds
an address says of which kind it is."""
SPECIAL_NETWORKS: Final = tuple(
    (kind, ip_network(text)) for kind, texts in SPECIAL for text in texts
)
EMBEDDING: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""Whose last 32 bits are an IPv4 address (RFC 4291, RFC 6052)."""
EMBEDDING_PREFIX: Final = 96

NEVER_PUBLIC: Final = frozenset(
    {"localhost", "local", "internal", "home.arpa", "test"}
    | {"intranet", "private", "corp", "home", "lan"}
)
"""No public name ends like this (RFC 6761, RFC 6762 with its appendix G, RFC 8375)."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: a name, a wildcard or a network; and ports."""

    name: str = ""
    """`*`, `*.example.com` or `example.com`; "" for a network."""
    network: Network | None = None
    first_port: int = 0
    last_port: int = PORT_MAX

    @property
    def text(self) -> str:
        """As it is written; the same for rules that allow the same."""
        ports = f"{self.first_port}"
        if self.last_port != self.first_port:
            ports = f"{self.first_port}-{self.last_port}"
        if (self.first_port, self.last_port) == (0, PORT_MAX):
            ports = ""
        if self.network is None:
            host = self.name
        else:
            whole = self.network.prefixlen == self.network.max_prefixlen
            host = str(self.network.network_address) if whole else str(self.network)
            if ports and self.network.version == 6:
                host = f"[{host}]"
        return f"{host}:{ports}" if ports else host

    def opens(self, port: int) -> bool:
        return self.first_port <= port <= self.last_port

    def names(self, name: str) -> bool:
        """Whether it allows a name, which is in lower case."""
        if self.name.startswith("*."):
            return name.endswith(self.name[1:])
        return self.name == ANY or self.name == name != ""

    @property
    def never_public(self) -> bool:
        """Whether no public name is named."""
        suffix = self.name.removeprefix("*.")
        if any(suffix == known or suffix.endswith("." + known) for known in NEVER_PUBLIC):
            return True
        return "." not in self.name and self.name != ANY

    def holds(self, address: Address) -> bool:
        """Whether its network allows the address."""
        network = self.network
        if network is None or address not in network:
            return False
        within = [special for _, special in SPECIAL_NETWORKS if address in special]
        return not within or any(is_part(network, special) for special in within)


class EgressPolicy:
    """What one worker may reach; for any thread."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._refusals: dict[tuple[str, int, str], str | None] = {}
        """Of addresses that were asked for before: every request of a worker asks."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Raises: UsageError naming the rule that makes no sense."""
        return cls(parse_rule(text) for text in texts)

    def check(self, host: str, port: int) -> str | None:
        """Why nothing at a name or address may be reached; None if something may."""
        address = literal_address(host)
        if address is not None:
            return self._check_address(host, port, address)
        name = ascii_name(host)
        if any(rule.opens(port) and rule.names(name) for rule in self._rules if name):
            return None
        return refusal(host_and_port(host, port), host_and_port(name or host, port))

    def check_address(self, host: str, port: int, address: str) -> str | None:
        """Why an address that `host` was resolved to may not be reached; None if it may."""
        asked = host, port, address
        if asked in self._refusals:
            return self._refusals[asked]
        found = literal_address(address)
        if found is None:
            raise InternalError(f"{host} was resolved to {address!r}, which is no address")
        why = self.check(host, port) or self._check_address(host, port, found)
        if len(self._refusals) >= REMEMBERED_MAX:
            self._refusals.clear()
        self._refusals[asked] = why
        return why

    def check_name(self, name: str) -> str | None:
        """Why a name may not be looked up; None if some port of it may be reached."""
        known = ascii_name(name)
        if any(rule.names(known) for rule in self._rules if known):
            return None
        return refusal(name, known or name)

    def _check_address(self, host: str, port: int, address: Address) -> str | None:
        kind = special_kind(address)
        name = "" if literal_address(host) is not None else ascii_name(host)
        for rule in self._rules:
            if not rule.opens(port):
                continue
            if rule.holds(address):
                return None
            if rule.names(name) and (kind is None or (name and rule.never_public)):
                return None
        asked = host_and_port(host, port)
        if name:
            asked += f" leads to {address}, which"
        if kind is not None:
            asked += f" is {kind} and" if name else f", which is {kind},"
        return refusal(asked, host_and_port(str(address), port))


def refusal(asked: str, rule: str) -> str:
    return f"{asked} is not allowed: deploy with --allow-net {rule}"


def host_and_port(host: str, port: int) -> str:
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def recorded_rules(texts: Sequence[str]) -> tuple[str, ...]:
    """Each rule once, as it is stored. Raises: UsageError naming the one that makes no sense."""
    return tuple(sorted({parse_rule(text).text for text in texts}))


# -- addresses and names ---------------------------------------------------------------------------


def literal_address(text: str) -> Address | None:
    """The address that a text is, with brackets or without; None for a name."""
    try:
        address = ip_address(text.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return None
    return unwrapped(address)


def unwrapped(address: Address) -> Address:
    """The IPv4 address that one of IPv6 stands for, if it does."""
    if isinstance(address, IPv6Address) and any(address in known for known in EMBEDDING):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def special_kind(address: Address) -> str | None:
    """Which kind of special an address is; None if it is public."""
    for kind, network in SPECIAL_NETWORKS:
        if address in network:
            return kind
    return None


def is_part(network: Network, whole: Network) -> bool:
    if isinstance(network, IPv4Network):
        return isinstance(whole, IPv4Network) and network.subnet_of(whole)
    return isinstance(whole, IPv6Network) and network.subnet_of(whole)


def ascii_name(name: str) -> str:
    """A host's name as it is looked up: lower case, IDNA, without the dot at its end; "" if it
    cannot be one.
    """
    try:
        known = name.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        return ""
    return known if len(known) <= NAME_CHARACTERS_MAX else ""


def is_name(name: str) -> bool:
    """Whether what `ascii_name` gave can be a host's."""
    return all(LABEL.fullmatch(label) for label in name.split("."))


# -- rules -----------------------------------------------------------------------------------------


def parse_rule(text: str) -> Rule:
    """Raises: UsageError."""
    host, ports = divided(text)
    first, last = parse_ports(text, ports) if ports is not None else (0, PORT_MAX)
    network = parse_network(text, host)
    if network is not None:
        return Rule(network=network, first_port=first, last_port=last)
    return Rule(name=parse_name(text, host), first_port=first, last_port=last)


def divided(text: str) -> tuple[str, str | None]:
    """Host and ports; a bare IPv6 address or range has none."""
    bracketed = BRACKETED.fullmatch(text)
    if bracketed is not None:
        return bracketed[1], bracketed[2]
    if text.count(":") > 1:
        return text, None
    host, colon, ports = text.partition(":")
    return host, ports if colon else None


def parse_ports(text: str, ports: str) -> tuple[int, int]:
    numbers = ports.split("-")
    if len(numbers) <= 2 and all(re.fullmatch("[0-9]{1,5}", number) for number in numbers):
        first, last = int(numbers[0]), int(numbers[-1])
        if 1 <= first <= last <= PORT_MAX:
            return first, last
    raise bad_rule(text, f"{ports!r} is no port, 1 to {PORT_MAX}, and no range as 8000-8099")


def parse_network(text: str, host: str) -> Network | None:
    """The range, or the range of one address; None if `host` is neither."""
    if "%" in host:
        raise bad_rule(text, "the zone of an address means something on one machine only")
    try:
        network = ip_network(host, strict=False)
    except ValueError:
        if "/" in host or ":" in host:
            raise bad_rule(text, f"{host!r} is no address and no range, as 10.0.0.0/8") from None
        return None
    if "/" in host and str(network.network_address) != str(ip_address(host.partition("/")[0])):
        raise bad_rule(text, f"{host} is no range: the one with that address is {network}")
    if isinstance(network, IPv6Network) and network.prefixlen >= EMBEDDING_PREFIX:
        address = unwrapped(network.network_address)
        if isinstance(address, IPv4Address):
            return IPv4Network((address, network.prefixlen - EMBEDDING_PREFIX))
    return network


def parse_name(text: str, host: str) -> str:
    if host == ANY:
        return host
    wildcard, name = ("*.", host[2:]) if host.startswith("*.") else ("", host)
    known = ascii_name(name)
    if not is_name(known):
        raise bad_rule(text, f"{host!r} is no host, nor '*.' before one")
    if known.rpartition(".")[2].isdecimal():
        raise bad_rule(text, f"{host!r} is no address, and no name ends in a number")
    return wildcard + known


def bad_rule(text: str, reason: str) -> UsageError:
    return UsageError(
        f"{text!r} is no rule: {reason}",
        where="allow-net",
        hint="HOST[:PORT], where HOST is a name, '*.' before one, '*', an address or a range",
    )
