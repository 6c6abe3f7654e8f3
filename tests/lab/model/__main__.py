"""``python -m tests.lab.model --seed N --kills K``: one experiment, or as many as it takes."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.lab.model import actors, calm, oracle
from tests.lab.model.actions import act
from tests.lab.model.driver import Driver

MOST_AT_ONCE = 400  # kills in one state directory


def experiment(seed: int, kills: int, folder: Path) -> Driver:
    """Violence until so many were killed, then calm and judgement."""
    driver = Driver(seed, folder)
    try:
        while driver.killed < kills:
            act(driver)
        calm.settle(driver)
        calm.look_at_survivors(driver)
        calm.leave(driver)
        calm.judge(driver, lambda: oracle.judge(driver))
    finally:
        driver.herd.end_all()
    return driver


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=150)
    parser.add_argument("--keep", action="store_true", help="leave the folder of a good experiment, too")
    chosen = parser.parse_args()
    actors.preload()
    kills: Counter[str] = Counter()
    verbs: Counter[str] = Counter()
    told: Counter[str] = Counter()
    points: Counter[str] = Counter()
    began, seed = time.monotonic(), chosen.seed
    while (left := chosen.kills - sum(count for what, count in kills.items() if what != "program")) > 0:
        folder = Path(tempfile.mkdtemp(prefix="model-check-"))
        try:
            driver = experiment(seed, min(left, MOST_AT_ONCE), folder)
        except BaseException:
            again = f"make lab LAB_SEED={seed} LAB_KILLS={min(left, MOST_AT_ONCE)}"
            print(f"failed; again: {again}; what it left: {folder}", flush=True)
            raise
        kills.update(driver.kills)
        verbs.update(driver.verbs)
        told.update(driver.told)
        points.update(driver.herd.deaths_at_points())
        print(f"seed {seed}: {dict(driver.kills)}, {time.monotonic() - began:.0f} s", flush=True)
        if not chosen.keep:
            shutil.rmtree(folder)
        seed += 1
    print(
        json.dumps(
            {
                "experiments": seed - chosen.seed,
                "kills": kills,
                "verbs": verbs,
                "told": told,
                "points": points,
            }
        )
    )


if __name__ == "__main__":
    main()
