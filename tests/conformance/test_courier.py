"""A component with sockets, in an executor: live, replayed, killed at every entry."""

from unittest.mock import patch

import pytest
import trio

from executor.durable.session import DurableSession
from executor.wasm.values import Err, Ok
from oplog.entry import Start, Suspend
from tests.support import guests
from tests.support.executors import LastingEngine, copy_oplog, opened, run, until, worker_entries
from tests.support.peers import echo, swallow, tcp_peer, udp_peer
from tests.support.terminals import Terminals

W = "courier/w"
RULES = ("localhost", "127.0.0.1")
LONG = "0123456789" * 2_000
LOST = Err("the socket was lost with an earlier instance")


async def deploy(shem, rules=RULES):
    await shem.deploy(guests.courier_component(), name="courier", allow_net=rules)


def test_a_component_asks_its_peers_and_nobody_is_asked_again():
    async def case():
        engine = LastingEngine()
        with tcp_peer(echo) as tcp, udp_peer() as udp:
            async with opened(engine) as shem:
                await deploy(shem)
                assert await shem.invoke(W, "ask", ["localhost", tcp.port, LONG]) == Ok(LONG)
                assert await shem.invoke(W, "ping", [udp.port, "é"]) == Ok("é")
                assert await shem.invoke(W, "dial", [tcp.port]) == Ok()
                assert await shem.invoke(W, "say", ["one"]) == Ok("one")
                assert await shem.invoke(W, "say", [LONG]) == Ok(LONG)
                assert tcp.total().decode() == LONG + "one" + LONG
                assert (await shem.replay(W)).divergence is None
        async with opened(engine) as shem:
            assert (await shem.replay(W)).divergence is None
            assert (await shem.crash(W)).divergence is None
        assert len(tcp.received) == 2
        assert udp.received == ["é".encode()]

    run(case)


def test_a_connection_that_is_kept_over_invocations_is_reset_by_a_loss():
    async def case():
        engine = LastingEngine()
        with tcp_peer(echo) as peer:
            for lose in ("crash", "restart"):
                async with opened(engine) as shem:
                    await deploy(shem)
                    assert await shem.invoke(W, "dial", [peer.port]) == Ok()
                    assert await shem.invoke(W, "say", ["one"]) == Ok("one")
                    if lose == "crash":
                        await shem.crash(W)
                        assert await shem.invoke(W, "say", ["two"]) == LOST
                        continue
                async with opened(engine) as shem:
                    assert await shem.invoke(W, "say", ["two"]) == LOST
                    assert await shem.invoke(W, "dial", [peer.port]) == Ok()
                    assert await shem.invoke(W, "say", ["three"]) == Ok("three")
                    assert (await shem.replay(W)).divergence is None
            assert peer.received == [b"one", b"one", b"three"]

    run(case)


@pytest.mark.parametrize("function", ["ask", "ping"])
def test_killed_at_any_entry_it_has_its_answer_or_hears_of_a_reset(function):
    async def case():
        engine = LastingEngine()
        with tcp_peer(echo) as tcp, udp_peer() as udp:
            asked = ["localhost", tcp.port, "hello"] if function == "ask" else [udp.port, "hello"]
            async with opened(engine) as shem:
                await deploy(shem)
                assert await shem.invoke(W, function, asked, key="k") == Ok("hello")
            entries = worker_entries(engine, W)
            lost = Err("connection-reset") if function == "ping" else LOST
            seen = []
            for kept in range(3, len(entries) + 1):
                again = LastingEngine()
                copy_oplog(engine, again, W, kept)
                async with opened(again, recover="all") as shem:
                    done = await shem.wait(W, "k")
                    assert done.status == "completed"
                    seen.append(done.value)
                    assert (await shem.replay(W)).divergence is None
                assert worker_entries(again, W)[:kept] == entries[:kept]
            losses = [number for number, value in enumerate(seen) if value == lost]
            assert losses == list(range(losses[0], losses[-1] + 1))
            assert [value for value in seen if value != lost] == [Ok("hello")] * (
                len(seen) - len(losses)
            )
            assert len(losses) >= 3

    run(case)


def test_a_long_wait_for_a_peer_keeps_its_instance():
    async def case():
        engine = LastingEngine()

        def late(peer, connection, received):
            received += connection.recv(100)
            peer.go.wait(10)
            connection.sendall(bytes(received))

        with tcp_peer(late) as peer:
            async with opened(engine, suspend_after_s=0.05) as shem:
                await deploy(shem)
                assert await shem.invoke(W, "dial", [peer.port]) == Ok()
                accepted = await shem.submit(W, "say", ["patience"])
                await trio.sleep(0.5)
                peer.go.set()
                assert (await shem.wait(W, accepted.key)).value == Ok("patience")
        assert not [e for _, e in worker_entries(engine, W) if isinstance(e, Suspend)]

    run(case)


def test_interrupted_while_it_waits_for_a_peer_it_is_left_at_once():
    async def case():
        with tcp_peer(lambda peer, connection, received: peer.go.wait(10)) as peer:
            engine = LastingEngine()
            async with opened(engine) as shem:
                await deploy(shem)
                accepted = await shem.submit(W, "ask", ["localhost", peer.port, "?"])
                await trio.sleep(0.3)
                with trio.fail_after(2):
                    assert (await shem.interrupt(W)).done
                peer.go.set()
                await shem.resume(W)
                assert (await shem.wait(W, accepted.key)).value == LOST
            functions = [e.function for _, e in worker_entries(engine, W) if isinstance(e, Start)]
            assert "wasi:io/streams.[method]input-stream.blocking-read" in functions

    run(case)


def test_from_the_command_line_a_refusal_names_the_missing_rule(tmp_path):
    terminals = Terminals(tmp_path)
    (tmp_path / "courier.wasm").write_bytes(guests.courier_component())
    assert terminals.shem("deploy", "courier.wasm").code == 0
    with tcp_peer(echo) as peer:
        ask = ("ask", '"localhost"', str(peer.port), '"hello"')
        refused = terminals.shem("invoke", "courier/none", *ask)
        assert (refused.code, refused.stdout) == (0, 'err("access-denied")\n')
        assert "localhost is not allowed: deploy with --allow-net localhost" in refused.stderr
        rule = f"localhost:{peer.port}"
        asked = terminals.shem("invoke", "courier/own", *ask, "--allow-net", rule)
        assert asked.stdout == 'ok("hello")\n'
        wrong = ("dial", str(peer.port + 1))
        refused = terminals.shem("invoke", "courier/own", *wrong)
        assert refused.stdout == 'err("access-denied")\n'
        assert f"--allow-net localhost:{peer.port + 1}" in refused.stderr
    terminals.close()


def test_what_is_written_last_leaves_before_the_executor_ends():
    """A guest that says something and hangs up has said it."""
    commit = DurableSession.commit

    async def slow_commit(session):
        await trio.sleep(0.3)
        await commit(session)

    async def case():
        with tcp_peer(swallow) as peer:
            async with opened(LastingEngine()) as shem:
                await deploy(shem)
                assert await shem.invoke(W, "leave", [peer.port, LONG]) == Ok()
                assert peer.total() == b""
            with trio.fail_after(2):
                await until(lambda: peer.total() == LONG.encode())

    with patch.object(DurableSession, "commit", slow_commit):
        run(case)
