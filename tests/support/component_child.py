"""Processes that are killed while they deploy a component or delete a worker.

`python -m tests.support.component_child` forks children as `executor.torture.child` does; each may
deploy a component, take the steps of its plan, and delete a worker. What came of it is appended to
a file beside the reports, a line each.
"""

from functools import partial
from pathlib import Path

import msgspec
import trio

from executor.errors import WorkerNotFound
from executor.torture.child import opened_drive, run_child, serve
from executor.torture.plan import Ended, Plan


class ComponentPlan(msgspec.Struct, frozen=True, kw_only=True):
    plan: Plan
    deploy: str = ""
    """File of the component, which is called `charger` and bound to the tests' bank."""
    host_directory: str = ""
    delete: str = ""
    """Worker."""
    told: str
    """File of what came of it."""


async def run(asked, plan, report):
    def tell(text):
        with Path(asked.told).open("a") as file:
            file.write(text + "\n")

    async with opened_drive(plan, report) as (drive, _):
        if asked.deploy:
            wasm = await trio.to_thread.run_sync(Path(asked.deploy).read_bytes)
            deployed = await drive.shem.deploy(
                wasm,
                name="charger",
                host=("tests.support.crash_bank:writing",),
                host_directory=asked.host_directory,
            )
            tell(f"revision {deployed.revision}")
        await drive.take_steps()
        if asked.delete:
            try:
                await drive.shem.delete(asked.delete)
            except WorkerNotFound:
                tell("no worker")
            else:
                tell("deleted")
    report(Ended())


def main():
    decode = msgspec.json.Decoder(ComponentPlan).decode

    def run_line(text):
        asked = decode(text)
        run_child(asked.plan, partial(run, asked))

    serve(run_line)


if __name__ == "__main__":
    main()
