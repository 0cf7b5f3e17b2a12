"""What a worker may reach of the network."""

import random
from ipaddress import ip_address, ip_network

import pytest

from executor.errors import UsageError
from executor.services.egress import (
    SPECIAL_NETWORKS,
    EgressPolicy,
    parse_rule,
    recorded_rules,
    special_kind,
)

PUBLIC = "93.184.216.34"
PUBLIC_6 = "2606:2800:220:1::1"


def allows(rules, host, port, address=None):
    policy = EgressPolicy.of(rules.split())
    return policy.check_address(host, port, address or host) is None


@pytest.mark.parametrize(
    ("rules", "host", "port", "allowed"),
    [
        ("", "example.com", 443, False),
        ("example.com", "example.com", 443, True),
        ("example.com", "EXAMPLE.com.", 443, True),
        ("Example.COM.", "example.com", 443, True),
        ("example.com", "www.example.com", 443, False),
        ("example.com", "notexample.com", 443, False),
        ("example.com:443", "example.com", 443, True),
        ("example.com:443", "example.com", 80, False),
        ("example.com:8000-8099", "example.com", 8000, True),
        ("example.com:8000-8099", "example.com", 8099, True),
        ("example.com:8000-8099", "example.com", 8100, False),
        ("*.example.com", "www.example.com", 1, True),
        ("*.example.com", "a.b.example.com", 1, True),
        ("*.example.com", "example.com", 1, False),
        ("*.example.com", "notexample.com", 1, False),
        ("*.example.com", ".example.com", 1, False),
        ("*.example.com:443", "www.example.com", 80, False),
        ("*", "example.com", 80, True),
        ("*:443", "example.com", 80, False),
        ("a.com b.com", "b.com", 80, True),
        ("b\u00fccher.example", "xn--bcher-kva.example", 80, True),
        ("xn--bcher-kva.example", "B\u00fccher.example", 80, True),
        ("*", "x" * 64 + ".com", 80, False),
        ("*", "", 80, False),
        ("10.0.0.0/8", "example.com", 80, False),
    ],
)
def test_a_name_is_allowed_by_a_rule_that_names_it(rules, host, port, allowed):
    assert (EgressPolicy.of(rules.split()).check(host, port) is None) == allowed
    assert allows(rules, host, port, PUBLIC) == allowed


@pytest.mark.parametrize(
    ("rules", "address", "allowed"),
    [
        ("", PUBLIC, False),
        ("*", PUBLIC, True),
        ("*", PUBLIC_6, True),
        ("*.com", PUBLIC, False),
        (PUBLIC, PUBLIC, True),
        (PUBLIC, "93.184.216.35", False),
        ("93.184.0.0/16", PUBLIC, True),
        ("0.0.0.0/0", PUBLIC, True),
        ("0.0.0.0/0", PUBLIC_6, False),
        ("::/0", PUBLIC_6, True),
        ("2606:2800::/32", PUBLIC_6, True),
        (PUBLIC_6.upper(), PUBLIC_6, True),
        # what is not public needs a rule that names it
        ("*", "127.0.0.1", False),
        ("0.0.0.0/0", "127.0.0.1", False),
        ("0.0.0.0/0 ::/0 *", "10.1.2.3", False),
        ("::/0", "::1", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/7", "10.1.2.3", False),
        ("10.1.0.0/16", "10.2.2.3", False),
        ("127.0.0.0/8", "127.5.5.5", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("localhost", "127.0.0.1", False),
        ("[::1]", "::1", True),
        ("::1", "[::1]", True),
        ("fd00::/8", "fd12::1", True),
        ("fc00::/7", "fd12::1", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("169.254.0.0/16", "169.254.169.254", True),
        ("169.254.169.254", "169.254.169.254", True),
        ("100.64.0.0/10", "100.64.1.1", True),
        # an IPv6 address that stands for one of IPv4
        ("*", "::ffff:127.0.0.1", False),
        ("*", "::ffff:93.184.216.34", True),
        ("*", "64:ff9b::7f00:1", False),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("::ffff:10.0.0.0/104", "10.1.1.1", True),
        ("::ffff:10.0.0.0/104", "11.1.1.1", False),
    ],
)
def test_an_address_is_allowed_by_a_rule_that_names_it(rules, address, allowed):
    policy = EgressPolicy.of(rules.split())
    assert (policy.check(address, 80) is None) == allowed
    assert (policy.check_address(address, 80, address) is None) == allowed


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1"),
        *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1"),
        *("192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1"),
        *("239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1"),
        *("fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1"),
        *("2002:7f00:1::", "64:ff9b:1::1", "64:ff9b::a9fe:a9fe", "::ffff:0.0.0.0", "100::1"),
    ],
)
def test_what_is_not_public_is_closed_to_everything_but_a_rule_that_names_it(address):
    for rules in ("*", "0.0.0.0/0 ::/0", "example.com", "* example.com *.example.com"):
        assert not allows(rules, address, 80), rules
        assert not allows(rules, "example.com", 80, address), rules
    assert allows(address, address, 80)
    assert allows(f"{address} example.com", "example.com", 80, address)


@pytest.mark.parametrize("address", ["172.15.255.255", "172.32.0.1", "100.128.0.1", "2a00::1"])
def test_what_lies_beside_a_private_range_is_public(address):
    assert special_kind(ip_address(address)) is None
    assert allows("*", address, 80)


@pytest.mark.parametrize(
    ("rules", "host", "address", "allowed"),
    [
        # a name that cannot be public names what it leads to
        ("localhost", "localhost", "127.0.0.1", True),
        ("localhost", "localhost", "::1", True),
        ("db", "db", "172.18.0.2", True),
        ("db.internal", "db.internal", "10.0.0.5", True),
        ("*.svc.cluster.local", "db.default.svc.cluster.local", "10.0.0.5", True),
        ("*.internal", "metadata.google.internal", "169.254.169.254", True),
        ("db.internal:5432", "db.internal", "10.0.0.5", False),
        ("*", "localhost", "127.0.0.1", False),
        ("*", "db.internal", "10.0.0.5", False),
        # a public name does not, whoever owns it
        ("example.com", "example.com", "127.0.0.1", False),
        ("example.com", "example.com", "169.254.169.254", False),
        ("*.com", "example.com", "10.0.0.5", False),
        ("internal.example.com", "internal.example.com", "10.0.0.5", False),
        ("notinternal.com", "notinternal.com", "10.0.0.5", False),
        # unless the range is named too; and the range alone allows no name
        ("db.example.com 10.0.0.0/8", "db.example.com", "10.0.0.5", True),
        ("* 10.0.0.0/8", "db.example.com", "10.0.0.5", True),
        ("db.example.com:80 10.0.0.0/8:81", "db.example.com", "10.0.0.5", False),
        ("10.0.0.0/8", "db.example.com", "10.0.0.5", False),
        # old spellings of addresses are names to us, and what they lead to is checked
        ("*", "2130706433", "127.0.0.1", False),
        ("*", "127.1", "127.0.0.1", False),
        ("*", "0x7f.0.0.1", "127.0.0.1", False),
    ],
)
def test_what_a_name_leads_to_is_checked_too(rules, host, address, allowed):
    assert allows(rules, host, 80, address) == allowed


@pytest.mark.parametrize(
    ("rules", "host", "port", "address", "asked", "rule"),
    [
        ("", "example.com", 443, None, "example.com:443 is", "example.com:443"),
        ("", "Example.com.", 443, None, "Example.com.:443 is", "example.com:443"),
        ("", "[2606::1]", 443, None, "[2606::1]:443 is", "[2606::1]:443"),
        ("*", "::1", 80, None, "[::1]:80, which is loopback, is", "[::1]:80"),
        ("*", "a.com", 80, "10.0.0.5",
         "a.com:80 leads to 10.0.0.5, which is private and is", "10.0.0.5:80"),
        ("*", "a.com", 80, "::ffff:169.254.169.254",
         "a.com:80 leads to 169.254.169.254, which is link-local and is", "169.254.169.254:80"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_rule_that_is_missing(rules, host, port, address, asked, rule):
    policy = EgressPolicy.of(rules.split())
    refused = policy.check_address(host, port, address) if address else policy.check(host, port)
    assert refused == f"{asked} not allowed: deploy with --allow-net {rule}"
    more = f"{rules} a.com {rule}"
    assert EgressPolicy.of(more.split()).check(host, port) is None
    assert address is None or allows(more, host, port, address)


def test_a_name_is_looked_up_only_if_some_port_of_it_may_be_reached():
    policy = EgressPolicy.of(["example.com:443", "10.0.0.0/8"])
    assert policy.check_name("EXAMPLE.com") is None
    assert policy.check_name("secret.attacker.example") == (
        "secret.attacker.example is not allowed: deploy with --allow-net secret.attacker.example"
    )
    assert EgressPolicy().check_name("example.com") is not None
    assert EgressPolicy.of(["*"]).check_name("example.com") is None


def test_the_whole_of_ipv6_but_its_public_part_is_special():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    public = ip_network("2000::/3")
    for _ in range(2_000):
        address = ip_address(chosen.getrandbits(128))
        if address.version == 6 and address not in public:
            assert special_kind(address) is not None
            assert allows(str(address), str(address), 80)
            assert not allows("* ::/0", str(address), 80)


def test_a_special_range_is_named_by_itself():
    for _, network in SPECIAL_NETWORKS:
        policy = EgressPolicy.of([str(network)])
        for address in (network[0], network[-1]):
            if str(address).startswith("::ffff:"):
                continue  # it stands for an address of IPv4
            assert policy.check(str(address), 80) is None, network


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Example.COM.:443", "example.com:443"),
        ("*.Example.com", "*.example.com"),
        ("*:80-90", "*:80-90"),
        ("example.com:443-443", "example.com:443"),
        ("example.com:1-65535", "example.com:1-65535"),
        ("10.0.0.1/32", "10.0.0.1"),
        ("10.0.0.0/8:5432", "10.0.0.0/8:5432"),
        ("[::1]:80", "[::1]:80"),
        ("[::1]", "::1"),
        ("FD00::/8", "fd00::/8"),
        ("[fd00:0::/8]:443", "[fd00::/8]:443"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("my_service", "my_service"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
    ],
)
def test_a_rule_is_written_as_it_is_read(text, canonical):
    rule = parse_rule(text)
    assert rule.text == canonical
    assert parse_rule(canonical) == rule
    assert recorded_rules([text, canonical]) == (canonical,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is no host"),
        ("https://example.com", "'//example.com' is no port"),
        ("example.com/path", "is no address and no range"),
        ("example.com:", "'' is no port"),
        ("example.com:0", "'0' is no port"),
        ("example.com:65536", "'65536' is no port"),
        ("example.com:90-80", "'90-80' is no port"),
        ("example.com:http", "'http' is no port"),
        ("example.com:+80", "'+80' is no port"),
        ("exa mple.com", "is no host"),
        ("a..b", "is no host"),
        ("foo*.com", "'foo*.com' is no host, nor '*.' before one"),
        ("*.*.com", "is no host"),
        ("**", "is no host"),
        ("*.", "is no host"),
        ("-a.com", "is no host"),
        ("1.2.3", "is no address, and no name ends in a number"),
        ("*.1", "is no address, and no name ends in a number"),
        ("300.1.1.1", "is no address, and no name ends in a number"),
        ("10.0.0.1/8", "10.0.0.1/8 is no range: the one with that address is 10.0.0.0/8"),
        ("10.0.0.0/33", "is no address and no range"),
        ("[::1", "is no address and no range"),
        ("[]:80", "is no host"),
        ("::g", "is no address and no range"),
        ("fe80::1%eth0", "the zone of an address means something on one machine only"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(text, reason):
    with pytest.raises(UsageError) as refused:
        parse_rule(text)
    assert reason in refused.value.message
    assert repr(text) in refused.value.message
    assert "HOST[:PORT]" in refused.value.hint
