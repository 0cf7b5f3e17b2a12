"""One seeded sequence of steps, taken by several stores and by a model of what they must hold.

A step is chosen once and taken by every store; after each the outcome is compared, and now and then
everything that can be read. The model keeps encoded entries and rows in plain dictionaries.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from oplog.codec import encode_entry, encode_value
from oplog.engine import TABLES, Batch, Count, Row
from oplog.entry import End, Entry, InvocationFinished, Log, NoOp, Outcome, Raw, Start
from oplog.errors import OplogError
from oplog.payload import reference_digest, split_payloads
from oplog.reader import Reader
from oplog.store import Store, Writer
from tests.support.engines import Heard

LARGE = [Raw(encode_value(bytes([n]) * 70_000)) for n in range(3)]
"""Few large contents, so that workers share them."""


@dataclass
class Side:
    store: Store
    writers: dict[bytes, Writer] = field(default_factory=dict)

    def wait_for(self, ask) -> str:
        """What the callback heard, as the name of its kind."""
        heard = Heard()
        ask(heard)
        return type(heard.wait()).__name__


class StepMachine:
    def __init__(self, stores: Sequence[Store], seed: int) -> None:
        self.random = random.Random(seed)
        self.sides = [Side(store) for store in stores]
        self.entries: dict[bytes, list[Entry]] = {}
        """Ordered entries of each living worker; those behind `durable` are only buffered."""
        self.durable: dict[bytes, int] = {}
        self.rows: dict[tuple[str, bytes], bytes] = {}
        self.attached: dict[bytes, list[Row]] = {}
        """Rows of what is only buffered."""
        self.dead: list[bytes] = []
        self.steps_taken: dict[str, int] = {}

    def run(self, count: int) -> None:
        steps = {
            self.create: 2,
            self.append: 12,
            self.commit: 6,
            self.submit_rows: 3,
            self.submit_unit: 2,
            self.submit_refused: 2,
            self.submit_expecting: 2,
            self.submit_counting: 2,
            self.reopen_writer: 1,
            self.discard: 1,
            self.delete: 1,
            self.compare: 1,
        }
        for _ in range(count):
            (step,) = self.random.choices(list(steps), list(steps.values()))
            if step != self.create and not self.entries:
                step = self.create
            step()
            self.steps_taken[step.__name__] = self.steps_taken.get(step.__name__, 0) + 1
        self.compare()

    # Steps.

    def create(self) -> None:
        worker_id = self.random.randbytes(16)
        self.entries[worker_id] = []
        self.durable[worker_id] = 0
        self.open_writers(worker_id)

    def open_writers(self, worker_id: bytes) -> None:
        for side in self.sides:
            assert side.store.engine.last_index(worker_id) == self.durable[worker_id]
            side.writers[worker_id] = side.store.writer(
                worker_id,
                self.durable[worker_id],
                lambda side=side: self.status_rows(worker_id, side.writers[worker_id].last_index),
            )

    @staticmethod
    def status_rows(worker_id: bytes, index: int) -> list[Row]:
        odd = Row("pending", worker_id, b"odd" if index % 2 else None)
        return [Row("workers", worker_id, b"%d" % index), odd]

    def append(self) -> None:
        worker_id = self.choose_worker()
        for _ in range(self.random.choice([1, 1, 2, 5])):
            entry = self.make_entry()
            self.entries[worker_id].append(entry)
            rows = [Row("promises", worker_id, self.random.randbytes(4))]
            attached = self.random.random() < 0.3
            for side in self.sides:
                writer = side.writers[worker_id]
                with writer.lock:
                    assert writer.append(entry) == len(self.entries[worker_id])
                    writer.attach(rows if attached else ())
            self.attached.setdefault(worker_id, []).extend(rows if attached else ())

    def commit(self) -> None:
        worker_id = self.choose_worker()
        outcomes = {side.wait_for(side.writers[worker_id].commit) for side in self.sides}
        assert outcomes == {"NoneType"}
        self.made_durable(worker_id)

    def made_durable(self, worker_id: bytes) -> None:
        index = len(self.entries[worker_id])
        if index > self.durable[worker_id]:
            self.put_rows(self.attached.pop(worker_id, []))
            self.put_rows(self.status_rows(worker_id, index))
        self.durable[worker_id] = index
        for side in self.sides:
            assert side.writers[worker_id].committed_index == index
            assert side.writers[worker_id].buffered_bytes == 0

    def submit_rows(self) -> None:
        rows = [
            Row(
                self.random.choice(TABLES),
                self.random.choice([b"a", b"ab", b"abc", b"b", b"\xff", b"\xff\xff"])
                + self.random.randbytes(self.random.randrange(2)),
                self.random.choice([None, b"", b"value", self.random.randbytes(30)]),
            )
            for _ in range(self.random.randrange(1, 6))
        ]
        assert self.submit(Batch(rows=rows)) == {"NoneType"}
        self.put_rows(rows)

    def submit_unit(self) -> None:
        """Two new workers, with a row, as one unit."""
        batch_entries = []
        for _ in range(2):
            worker_id = self.random.randbytes(16)
            entries = [NoOp(at=1)] * self.random.randrange(1, 4)
            self.entries[worker_id], self.durable[worker_id] = entries, len(entries)
            batch_entries += [(worker_id, i, encode_entry(e)) for i, e in enumerate(entries, 1)]
        self.random.shuffle(batch_entries)
        batch_entries.sort(key=lambda item: item[1])
        rows = [Row("worker_index", batch_entries[0][0], b"two")]
        assert self.submit(Batch(entries=batch_entries, rows=rows)) == {"NoneType"}
        self.put_rows(rows)
        for worker_id in {item[0] for item in batch_entries}:
            self.open_writers(worker_id)

    def submit_refused(self) -> None:
        """A batch that contradicts what is stored: nothing of it may be seen."""
        worker_id = self.random.choice([*self.entries, *self.dead])
        durable = self.durable.get(worker_id, 0)
        wrong = [index for index in (durable - 1, durable, durable + 2) if index > 0]
        first = self.random.choice(wrong)
        lost = Raw(b"\xc7\x20\x01" + self.random.randbytes(32))
        batch = self.random.choice(
            [
                Batch(entries=[(worker_id, first, encode_entry(NoOp(at=2)))]),
                Batch(
                    entries=[
                        (
                            worker_id,
                            durable + 1,
                            encode_entry(End(at=1, start_index=1, response=lost)),
                        )
                    ]
                ),
                Batch(entries=[(worker_id, durable + 1, b"\xc1\xc7\x20\x01")]),
            ]
        )
        rows = [Row("results", b"never", b"seen")]
        refused = Batch(entries=batch.entries, rows=rows)
        assert self.submit(refused) == {"BatchRefusedError"}

    def submit_expecting(self) -> None:
        """A batch that is written only if a row is as it was read, or is not there."""
        table, key = "promises", self.random.choice([b"a", self.choose_worker()])
        stored = self.rows.get((table, key))
        expected = self.random.choice([stored, stored, None, b"other"])
        rows = [Row(table, key, self.random.choice([None, self.random.randbytes(3)]))]
        batch = Batch(rows=rows, expects=[Row(table, key, expected)])
        if expected == stored:
            assert self.submit(batch) == {"NoneType"}
            self.put_rows(rows)
        else:
            assert self.submit(batch) == {"RowChangedError"}

    def submit_counting(self) -> None:
        """A batch that adds to two numbers, of which one has a bound."""
        added = [self.random.randrange(-9, 10) for _ in range(2)]
        counts = [
            Count("keyvalue", b"\x00n", added[0], most=20),
            Count("keyvalue", b"\x00m", added[1]),
        ]
        numbers = [
            int.from_bytes(self.rows.get(("keyvalue", count.key), b""), signed=True) + count.added
            for count in counts
        ]
        rows = [Row("results", b"counted", b"%d" % numbers[0])]
        batch = Batch(rows=rows, counts=counts)
        if added[0] > 0 and numbers[0] > 20:
            assert self.submit(batch) == {"CountExceededError"}
            return
        assert self.submit(batch) == {"NoneType"}
        self.put_rows(rows)
        self.put_rows(
            [
                Row(count.table, count.key, number.to_bytes(8, signed=True) if number else None)
                for count, number in zip(counts, numbers, strict=True)
            ]
        )

    def reopen_writer(self) -> None:
        """The worker is unloaded and loaded again; what was only buffered is gone."""
        worker_id = self.choose_worker()
        self.lose_buffer(worker_id)
        self.open_writers(worker_id)

    def lose_buffer(self, worker_id: bytes) -> None:
        del self.entries[worker_id][self.durable[worker_id] :]
        self.attached.pop(worker_id, None)

    def discard(self) -> None:
        worker_id = self.choose_worker()
        self.lose_buffer(worker_id)
        for side in self.sides:
            side.writers[worker_id].discard()

    def delete(self) -> None:
        worker_id = self.choose_worker()
        rows = [Row(table, worker_id, None) for table in ("workers", "pending", "promises")]
        self.attached.pop(worker_id, None)
        assert self.submit(Batch(deletes=[worker_id], rows=rows)) == {"NoneType"}
        self.put_rows(rows)
        del self.entries[worker_id], self.durable[worker_id]
        self.dead.append(worker_id)
        for side in self.sides:
            del side.writers[worker_id]

    # What they use.

    def choose_worker(self) -> bytes:
        return self.random.choice(list(self.entries))

    def make_entry(self) -> Entry:
        at = self.random.randrange(1 << 62)
        large = self.random.choice(LARGE)
        return self.random.choice(
            [
                NoOp(at=at),
                Start(at=at, function="f", function_type="read-local"),
                Log(at=at, level="stdout", text="x" * self.random.choice([0, 10, 5000, 80_000])),
                End(at=at, start_index=1, response=Raw(encode_value(self.random.randbytes(20)))),
                End(at=at, start_index=1, response=large),
                InvocationFinished(at=at, outcome=Outcome(result=large)),
                End(at=at, start_index=1, response=Raw(encode_value(b"\xc7\x20\x01" + bytes(32)))),
            ]
        )

    def put_rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.value is None:
                self.rows.pop((row.table, row.key), None)
            else:
                self.rows[row.table, row.key] = row.value

    def submit(self, batch: Batch) -> set[str]:
        return {
            side.wait_for(lambda done, side=side: side.store.submit(batch, done))
            for side in self.sides
        }

    # What can be read.

    def compare(self) -> None:
        for side in self.sides:
            for table in TABLES:
                self.compare_table(side.store, table)
            digests = self.compare_entries(side.store)
            self.compare_payloads(side.store, digests)

    def compare_table(self, store: Store, table: str) -> None:
        own = {} if table != "meta" else {b"format", b"epoch"}
        wanted = sorted((key, value) for (name, key), value in self.rows.items() if name == table)
        after = self.random.choice([None, b"ab", b"b\x00", b"\xff"])
        prefix = self.random.choice([b"", b"a", b"ab", b"\xff", b"nothing"])
        limit = self.random.choice([0, 1, 2, 1000])
        found = store.engine.read_rows(table)
        assert [row for row in found if row[0] not in own] == wanted
        if not own:
            page = [row for row in wanted if row[0].startswith(prefix)]
            page = [row for row in page if after is None or row[0] > after][:limit]
            assert store.engine.read_rows(table, prefix, after, limit) == page
        for key, value in wanted:
            assert store.engine.read_row(table, key) == value
        assert store.engine.read_row(table, b"no such key") is None

    def compare_entries(self, store: Store) -> set[bytes]:
        """Each worker's committed entries, by random pages; gives the digests they refer to."""
        reader = Reader(store.engine)
        digests = set()
        for worker_id in self.dead:
            assert store.engine.last_index(worker_id) == 0
            assert reader.read(worker_id, 1, 10) == []
        for worker_id, entries in self.entries.items():
            durable = self.durable[worker_id]
            assert store.engine.last_index(worker_id) == durable
            read: list[tuple[int, Entry]] = []
            while page := reader.read(worker_id, len(read) + 1, self.random.choice([1, 3, 1024])):
                read += page
            assert [index for index, _ in read] == list(range(1, durable + 1))
            for (_, entry), original in zip(read, entries, strict=False):
                whole = entry
                if isinstance(entry, End):
                    digests.add(reference_digest(entry.response))
                    whole = End(at=entry.at, start_index=1, response=store.resolve(entry.response))
                if isinstance(entry, InvocationFinished):
                    digests.add(reference_digest(entry.outcome.result))
                    result = store.resolve(entry.outcome.result)
                    whole = InvocationFinished(at=entry.at, outcome=Outcome(result=result))
                assert encode_entry(whole) == encode_entry(original)
        return digests - {None}

    def compare_payloads(self, store: Store, digests: set[bytes]) -> None:
        """A content is there exactly if an entry refers to it."""
        for large in LARGE:
            from_content = reference_digest(self.reference_to(large))
            try:
                store.engine.read_payload(from_content)
            except OplogError:
                assert from_content not in digests
            else:
                assert from_content in digests

    @staticmethod
    def reference_to(raw: Raw) -> Raw:
        from_entry = split_payloads(End(at=1, start_index=1, response=raw))[0]
        return from_entry.response
