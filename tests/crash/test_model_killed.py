"""The reference model against the command line, whose process kills itself at random points."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from executor.worker.rows import read_worker_id
from guests import recipes
from oplog.lmdb_engine import LmdbEngine
from tests.conformance.model.follower import UNKNOWN, Follower
from tests.conformance.model.program import encode
from tests.conformance.model.regions import question
from tests.conformance.model.subject import Deed, Ordered
from tests.conformance.model.wander import random_program
from tests.support.executors import entries_of
from tests.support.stepper_outside import read_deeds

ROOT = Path(__file__).parents[2]
WORKER = "stepper/w"
PROCESSES = 10
EVERYTHING = 1 << 60
POINTS = (
    ("append", 30),
    ("append", 30),
    ("commit", 12),
    ("before-effect", 8),
    ("after-effect", 8),
    ("before-result", 1),
    ("after-result", 1),
)


class Processes:
    """The command line over one store, and the reference beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.deeds_path = folder / "deeds"
        self.ordered: list[Ordered] = []
        self.deeds: list[Deed] = []
        self.follower: Follower | None = None

    def shem(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "executor.cli", *words],
            cwd=ROOT,
            env=os.environ
            | {
                "PYTHONPATH": str(ROOT),
                "SHEM_DATA": str(self.folder / "store"),
                "STEPPER_DEEDS": str(self.deeds_path),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def look(self) -> None:
        """What is durable of the worker, and what it did outside."""
        engine = LmdbEngine.open(self.folder / "store", readonly=True)
        try:
            worker_id = read_worker_id(engine, WORKER)
            entries = [] if worker_id is None else entries_of(engine, worker_id)
        finally:
            engine.close()
        self.ordered[:] = [Ordered(entry, EVERYTHING) for _, entry in entries]
        self.deeds[:] = [
            Deed(effect, EVERYTHING, UNKNOWN, "answered") for effect in read_deeds(self.deeds_path)
        ]
        if self.follower is None and worker_id is not None:
            self.follower = Follower(worker_id, self.ordered, self.deeds)
            self.follower.sees_lost = False


def random_point(source: random.Random) -> str:
    kind, most = source.choice(POINTS)
    if kind in ("before-result", "after-result"):
        return kind
    return f"{kind}:{source.randrange(1, most)}"


def mend(processes: Processes) -> None:
    """What an owner does about a worker that stands still."""
    follower = processes.follower
    assert follower is not None
    reference = follower.reference
    if reference.ended() is not None:
        assert processes.shem("revert", WORKER, "--last", "1").returncode == 0
        processes.look()
        assert follower.act(reference.revert_last(1), EVERYTHING)
    elif start := question(reference.log):
        assert processes.shem("resolve", WORKER, str(start), "--repeat").returncode in (0, 1)
        processes.look()
        follower.act(reference.resolve(start, "repeat", None), EVERYTHING)
        follower.check_rest()


def test_a_killed_process_leaves_and_takes_up_what_the_reference_says(tmp_path):
    seed = 3
    print(f"seed {seed}")
    source = random.Random(seed)
    processes = Processes(tmp_path)
    wasm = str(recipes.build("stepper"))
    host = "tests.support.stepper_outside:FUNCTIONS"
    assert processes.shem("deploy", wasm, "--host", host).returncode == 0
    killed = 0
    for number in range(PROCESSES):
        program = random_program(source, source.randrange(8, 24))
        point = random_point(source)
        argument = json.dumps(list(encode(program)))
        words = ("invoke", WORKER, "run", argument, "--key", f"k{number}", "--crash-at", point)
        done = processes.shem(*words)
        print(number, point, done.returncode, done.stdout, done.stderr)
        killed += done.returncode == -signal.SIGKILL
        processes.look()
        follower = processes.follower
        if follower is None:
            processes.deeds_path.unlink(missing_ok=True)
            continue
        kept = len(processes.ordered)
        follower.act_partly(follower.reference.submit(f"k{number}", program))
        follower.die(kept, None)
        follower.forget(kept)
        mend(processes)
    assert killed >= PROCESSES // 3
    processes.shem("run", "--until-idle")
    processes.look()
    assert processes.follower is not None
    processes.follower.check_rest()
    shown = json.loads(processes.shem("worker", WORKER, "--json").stdout)
    reference = processes.follower.reference
    assert (shown["status"], shown["entries"]) == (reference.status(), len(reference.log))
