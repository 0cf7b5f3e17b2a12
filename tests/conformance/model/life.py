"""One worker's life in the executor under test: what its owners ask for, checked at every rest."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NoReturn

import trio

from executor import Executor
from executor.errors import ShemError, StoreError
from oplog.errors import OplogError
from tests.conformance.model.events import Steps
from tests.conformance.model.follower import Difference, Follower
from tests.conformance.model.program import Op, encode
from tests.conformance.model.reference import Reference, RefusedError
from tests.conformance.model.regions import (
    cancelled,
    current,
    hidden,
    outcomes,
    pending,
    question,
)
from tests.conformance.model.session import Tally
from tests.conformance.model.subject import COMPONENT, Outside, Subject
from tests.support.executors import check_rows

REST_TIMEOUT_S: Final = 20
Ask = Callable[[], Awaitable[Any]]
Act = Callable[[], Steps[Any]]


class Life:
    """A worker of one name, from its first invocation to its deletion."""

    def __init__(self, subject: Subject, name: str) -> None:
        self.subject = subject
        self.name = f"{COMPONENT}/{name}"
        self.outside = Outside()
        self.follower: Follower | None = None
        self.doing: Act | None = None
        """What is asked for right now, as the reference has it."""
        self.first: tuple[str, list[Op]] | None = None
        """The invocation that creates the worker."""
        self.actions = 0
        """Of owners, so far."""
        self.tally = Tally()
        subject.outsides[self.name] = self.outside

    @property
    def reference(self) -> Reference:
        assert self.follower is not None
        return self.follower.reference

    def begin_action(self, what: str) -> None:
        """An owner asks for something."""
        self.actions += 1
        if self.follower is not None:
            self.follower.note(what)

    def differ(self, seen: str, said: str) -> NoReturn:
        assert self.follower is not None
        self.follower.differ(seen, said)

    def unfinished(self) -> list[list[Op]]:
        """The programs that run, or wait."""
        log = self.reference.log
        waiting = [entry for _, entry in pending(log)]
        running = current(log)
        if running is not None:
            waiting.append(running[1])
        return [self.reference.programs[entry.fields["arguments"]] for entry in waiting]

    # ---- at any time -------------------------------------------------------------------------

    async def rest(self, shem: Executor) -> bool:
        """Waits until the worker does nothing by itself: True, or waits for its outside."""
        loop = await self.reported(shem._workers.loop)
        self.outside.on_hold = loop.worker.notify
        with trio.move_on_after(REST_TIMEOUT_S) as waiting:
            while self.outside.held is None and loop.has_work():
                await loop.worker.wait_news()
            while self.outside.held is None and loop.worker.unsaved:  # noqa: ASYNC110
                await trio.sleep(0.0005)
        if waiting.cancelled_caught:
            await self.live_on()
            worker = loop.worker
            self.differ(
                f"nothing: {worker.status}, runs {loop.running}, {self.outside.deeds[-1:]}", "rest"
            )
        await self.live_on()
        follower = self.follower
        assert follower is not None
        if self.outside.held is not None:
            follower.check_held()
            return False
        follower.check_rest()
        return True

    async def live_on(self) -> None:
        """Goes no further if the process is dead: what is seen then says nothing."""
        if self.subject.fuse.dead:
            await trio.sleep_forever()

    async def ask(self, ask: Ask, act: Act, *, leaves: bool = False) -> Any:
        """Has the executor do something, and the reference: both do it, or refuse it alike.

        With `leaves` a call that waits for its outside is left first, and its instance with it.
        """
        abandons = leaves and self.outside.held is not None
        self.doing = act
        refused = ""
        answer = None
        try:
            answer = await ask()
        except (ShemError, OplogError) as error:
            await self.live_on()
            refused = error.kind if isinstance(error, ShemError) else repr(error)
        said: Any = None
        try:
            said = self.act(act, abandons=abandons)
        except RefusedError as refusal:
            if refused != refusal.kind:
                self.differ(f"a refusal {refused!r}", f"{refusal.kind!r}")
        except Difference as difference:
            if refused:
                self.differ(f"a refusal {refused!r}", f"{difference.args[0].splitlines()[-1]}")
            raise
        else:
            if refused:
                self.differ(f"a refusal {refused!r}", "done")
            done = getattr(answer, "done", None)
            if isinstance(said, bool) and done is not None and done != said:
                self.differ(f"{answer}", f"{said}")
        self.doing = None
        return answer

    def act(self, act: Act, *, abandons: bool) -> Any:
        follower = self.follower
        if follower is None:  # the first invocation makes the worker
            self.follower = follower = self.follow()
        if abandons:
            follower.abandon()
        else:
            follower.follow()
        return follower.act(act(), self.subject.committed(self.name))

    def follow(self) -> Follower:
        """A follower of the worker that has the name now."""
        worker_id = self.subject.born[self.name]
        follower = Follower(worker_id, self.subject.ordered[worker_id], self.outside.deeds)
        follower.reference.tally = self.tally
        if self.first is not None:
            follower.reference.programs[encode(self.first[1])] = self.first[1]
        return follower

    def after_kill(self, choose: Callable[[int, int], int] | None = None) -> None:
        """The executor is closed after a kill: what it left is a legal prefix.

        `choose(least, most)`, if given, says how many entries another death would have left.
        """
        doing, self.doing = self.doing, None
        kept = self.subject.committed(self.name)
        if self.follower is None and kept:
            self.follower = self.follow()
        follower = self.follower
        if follower is None or kept == 0:
            self.begin_again()
            return
        follower.die(kept, None if doing is None else doing())
        if choose is not None:
            chosen = choose(max(follower.must_keep, 1), len(follower.ordered))
            if chosen != kept:
                kept = chosen
                self.subject.rewrite(self.name, kept)
        follower.forget(kept)

    # ---- what owners ask for -----------------------------------------------------------------

    async def submit(self, shem: Executor, key: str, program: list[Op]) -> None:
        self.begin_action("submit")
        if self.follower is None:
            self.first = key, program

        def act() -> Steps[bool]:
            return self.reference.submit(key, program)

        arguments = [encode(program)]
        accepted = await self.ask(partial(shem.submit, self.name, "run", arguments, key=key), act)
        if accepted is not None:
            assert accepted.key == key

    async def cancel(self, shem: Executor, key: str) -> None:
        self.begin_action("cancel")
        await self.ask(partial(shem.cancel, self.name, key), lambda: self.reference.cancel(key))

    async def resume(self, shem: Executor) -> None:
        self.begin_action("resume")
        await self.ask(partial(shem.resume, self.name), self.reference.resume)

    async def interrupt(self, shem: Executor) -> None:
        """While a write waits for its outside it is let go, and its end recorded."""
        self.begin_action("interrupt")

        held = self.outside.held
        writes = held is not None and held.effect.function == "write-remote"

        async def ask() -> object:
            if writes:
                trio.lowlevel.spawn_system_task(self.let_go)
            return await shem.interrupt(self.name)

        await self.ask(ask, self.reference.interrupt, leaves=not writes)

    async def let_go(self) -> None:
        await trio.lowlevel.checkpoint()
        self.outside.release()

    async def revert(
        self, shem: Executor, *, to: int | None = None, last: int | None = None
    ) -> None:
        self.begin_action("revert")

        def act() -> Steps[bool]:
            if to is not None:
                return self.reference.revert_to(to)
            assert last is not None
            return self.reference.revert_last(last)

        await self.ask(partial(shem.revert, self.name, to=to, last=last), act, leaves=True)

    async def resolve(self, shem: Executor, choice: Any) -> None:
        """With `value` the answer is 7, or a key of its halves."""
        self.begin_action("resolve")
        log = self.reference.log
        start = question(log)
        asked = log[start - 1].text("function")
        key = {"high-bits": 7, "low-bits": 7}
        value = key if asked.endswith("generate-idempotency-key") else 7
        await self.ask(
            partial(shem.resolve, self.name, start, choice, value if choice == "value" else None),
            lambda: self.reference.resolve(start, choice, value),
        )

    async def crash(self, shem: Executor) -> None:
        """The instance is dropped wherever it is; the report tells of a divergence, or of none."""
        self.begin_action("crash")
        report = await self.reported(shem.crash)
        kept = self.subject.committed(self.name)
        follower = self.follower
        assert follower is not None
        follower.abandon()
        self.check_report(report, {kept})

    async def crash_running(self, shem: Executor) -> None:
        """As `crash`, wherever the worker is by then; and once more where it rests, so that it is
        known again which instance there is.
        """
        self.begin_action("crash while running")
        follower = self.follower
        assert follower is not None
        follower.restarted = True
        await self.reported(shem.crash)
        await self.rest(shem)
        await self.crash(shem)

    async def replay(self, shem: Executor) -> None:
        self.begin_action("replay")
        before = self.subject.committed(self.name)
        report = await self.reported(shem.replay)
        self.check_report(report, {before, self.subject.committed(self.name)})

    async def reported(self, rebuild: Callable[[str], Awaitable[Any]]) -> Any:
        try:
            return await rebuild(self.name)
        except (StoreError, OplogError):
            await self.live_on()
            raise

    def check_report(self, report: Any, kept: set[int]) -> None:
        """A replay goes through what is durable when it begins."""
        diverges = {self.reference.diverges(count) for count in kept}
        if (report.divergence is not None) not in diverges:
            self.differ(f"divergence {report.divergence}", f"{diverges}")

    async def delete(self, shem: Executor) -> None:
        """The worker is gone; the next one of its name is another one with another outside."""
        self.begin_action("delete")
        try:
            await shem.delete(self.name)
        except (StoreError, OplogError):
            await self.live_on()
            raise
        self.begin_again()

    def begin_again(self) -> None:
        """Nothing is left of the worker; its effects are those of another one."""
        worker_id = self.subject.born.pop(self.name, None)
        if worker_id is not None:
            self.subject.ordered.pop(worker_id, None)
        self.follower = None
        self.outside = self.subject.outsides[self.name] = Outside()

    # ---- what is to be seen at rest ----------------------------------------------------------

    async def check(self, shem: Executor) -> None:
        """The worker's record, its keys, its hidden entries and its rows are as they should be."""
        try:
            await self.check_all(shem)
        except (Difference, AssertionError, ShemError):
            await self.live_on()
            raise

    async def check_all(self, shem: Executor) -> None:
        reference = self.reference
        log = reference.log
        record = await shem.worker(self.name)
        status = record.status
        if reference.diverged and status == "retrying":
            status = "running"  # it stands still, whatever it was about to do
        seen = status, record.pending, record.entries
        waiting = tuple(entry["key"] for _, entry in pending(log))
        said = reference.status(), waiting, len(log)
        if seen != said:
            self.differ(f"the worker {seen}", f"{said}")
        shown = [entry.index async for entry in shem.oplog(self.name) if entry.hidden]
        if shown != hidden(log):
            self.differ(f"hidden {shown}", f"{hidden(log)}")
        done = outcomes(log)
        for key in {entry.text("key") for entry in log if entry.kind == "pending-invocation"}:
            await self.check_key(shem, key, done)
        check_rows(self.subject.engine, self.subject.born[self.name])

    async def check_key(self, shem: Executor, key: str, done: Any) -> None:
        try:
            found = await shem.invocation(self.name, key)
            seen: object = found.status
        except ShemError as error:
            seen = error.kind
        if self.reference.accepted(key) is None:
            said = "unknown-key"
        elif key in done:
            ended = done[key]
            bad = ended["outcome"] == "failure" or (ended["outcome"], ended["value"]) == ("exit", 1)
            said = "failed" if bad else "completed"
        else:
            said = "failed" if key in cancelled(self.reference.log) else "pending"
        if seen != said:
            self.differ(f"key {key} {seen}", f"{said}")
