"""Names that a guest looks up: where they lead, what fails, and what that allows."""

import socket

import trio
from trio.testing import trio_test

from executor.services.egress import EgressPolicy
from oplog.entry import Error
from tests.support.peers import echo, tcp_peer
from tests.support.python_guest import world
from tests.support.resolver import Resolver
from tests.support.socket_guest import Network


async def looked_up(names, program, rules=("*",)):
    resolver = Resolver(names)
    trio.socket.set_custom_hostname_resolver(resolver)
    async with world(egress=EgressPolicy.of(rules)) as around:
        ran = await around.run(lambda guest: program(Network(guest), guest.tell))
        again = await around.run(lambda guest: program(Network(guest), guest.tell), ran.entries)
        assert (again.trace, again.entries) == (ran.trace, ran.entries)
    return ran, resolver


@trio_test
async def test_a_name_leads_to_its_addresses_once_each_in_the_resolvers_order():
    names = {"example.com": ["93.184.216.34", "2606::1", "93.184.216.34"]}

    def program(network, tell):
        tell(network.look_up("Example.com."))

    ran, resolver = await looked_up(names, program)
    [found] = ran.trace
    assert [(ip.case, ip.payload) for ip in found] == [
        ("ipv4", (93, 184, 216, 34)),
        ("ipv6", (0x2606, 0, 0, 0, 0, 0, 0, 1)),
    ]
    assert resolver.asked == ["example.com"]


@trio_test
async def test_an_address_in_place_of_a_name_is_answered_as_it_is():
    def program(network, tell):
        for text in ("127.0.0.1", "::1"):
            tell([ip.case for ip in network.look_up(text)])
        for name in ("", "a b", "exa/mple", "x" * 64 + ".com", "a..b"):
            tell(network.look_up(name))

    ran, resolver = await looked_up({}, program, rules=())
    assert ran.trace == [["ipv4"], ["ipv6"], *["invalid-argument"] * 5]
    assert resolver.asked == []


@trio_test
async def test_failures_of_the_resolver_have_their_codes_and_what_may_pass_is_tried_again():
    names = {
        "nobody.com": [socket.EAI_NONAME],
        "broken.com": [socket.EAI_FAIL],
        "slow.com": [socket.EAI_AGAIN, ["93.184.216.34"]],
        "gone.com": [socket.EAI_AGAIN] * 3,
    }

    def program(network, tell):
        for name in ("nobody.com", "broken.com", "slow.com", "gone.com"):
            found = network.look_up(name)
            tell(found if isinstance(found, str) else len(found))

    ran, resolver = await looked_up(names, program)
    assert ran.trace == [
        *("name-unresolvable", "permanent-resolver-failure", 1, "temporary-resolver-failure")
    ]
    assert resolver.asked == ["nobody.com", "broken.com", *["slow.com"] * 2, *["gone.com"] * 3]
    assert len([entry for entry in ran.entries if isinstance(entry, Error)]) == 3


@trio_test
async def test_a_connection_is_allowed_by_the_name_that_led_to_its_address():
    with tcp_peer(echo) as peer:
        names = {
            "db.internal": ["127.0.0.1"],
            "public.com": ["127.0.0.1"],
        }
        rules = [f"db.internal:{peer.port}", "public.com"]

        def program(network, tell):
            tell(network.connect(network.tcp(), "127.0.0.1", peer.port))
            network.look_up("public.com")
            tell(network.connect(network.tcp(), "127.0.0.1", peer.port))
            network.look_up("db.internal")
            tell(isinstance(network.connect(network.tcp(), "127.0.0.1", peer.port), tuple))
            tell(network.connect(network.tcp(), "127.0.0.1", peer.port + 1))

        ran, _ = await looked_up(names, program, rules)
        assert ran.trace == ["access-denied", "access-denied", True, "access-denied"]
