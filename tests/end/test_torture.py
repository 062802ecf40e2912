"""Random kills under load: 50 of them here, SL_TORTURE for `make torture`. A round that fails says its seed; SL_SEED plays from
that one on."""

import os
import shutil
import time

import pytest
from testpoints import all_at_once
from torture import play

KILLS = int(os.environ.get("SL_TORTURE", 50))
SEED = int(os.environ.get("SL_SEED", time.time()))
TOGETHER = 4


@pytest.mark.timeout(300 + 20 * KILLS)
def test_the_books_balance_whoever_is_killed(tmp_path, capsys):
    def one(seed):
        directory = tmp_path / str(seed)
        outcome = play(directory, seed)
        shutil.rmtree(directory)
        return outcome

    begun, seed, calls, kills, wrong = time.monotonic(), SEED, 0, 0, []
    while kills < KILLS and len(wrong) < TOGETHER:
        for end in all_at_once(one, range(seed, seed + TOGETHER), workers=TOGETHER).values():
            if isinstance(end, BaseException):
                wrong.append(str(end))
            else:
                calls, kills = calls + end.calls, kills + end.kills
        seed += TOGETHER
    with capsys.disabled():
        took = time.monotonic() - begun
        print(f" {kills} kills in {seed - SEED} rounds from seed {SEED}, {calls} calls, {len(wrong)} wrong, {took:.0f} s ", end="")
    assert not wrong, "\n".join(wrong)
