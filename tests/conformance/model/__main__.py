"""The reference against the executor for as long as one likes; a difference names its seed.

python -m tests.conformance.model --steps 1000000 --seed 1
python -m tests.conformance.model --seed 17 --rounds 1        one round again
"""

import argparse
import logging
import sys
import time
import traceback

import trio

from tests.conformance.model.subject import Subject
from tests.conformance.model.wander import Figures, wander

LIVES = 8
SHOWN_ROUNDS = 100


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.model")
    parser.add_argument("--steps", type=int, default=1_000_000, help="until so many are done")
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="or so many rounds")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)  # a killed executor's store complains of it
    began, used = time.monotonic(), time.process_time()
    figures = Figures()
    rounds = 0
    while figures.steps < asked.steps and rounds < asked.rounds:
        seed = asked.seed + rounds
        subject = Subject(seed)
        try:
            trio.run(wander, subject, seed, LIVES, figures)
        except Exception:
            print(traceback.format_exc(), *subject.reports[-3:], sep="\n")
            print(f"a difference: python -m tests.conformance.model --seed {seed} --rounds 1")
            return 1
        rounds += 1
        if rounds % SHOWN_ROUNDS == 0:
            print(f"{figures.steps} steps in {rounds} rounds", flush=True)
    print(
        f"no difference in {figures.steps} steps: seeds {asked.seed} to {asked.seed + rounds - 1},"
        f" {time.monotonic() - began:.0f} s, {time.process_time() - used:.0f} s of CPU"
    )
    for name, count in sorted(figures.counts.items()):
        print(f"  {name}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
