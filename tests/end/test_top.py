"""top, in a real terminal (tmux) of 80 by 24 and without one."""

import os
import shlex
import signal
import subprocess

import pytest
from conftest import wait_until
from test_pause import Told


class Terminal:
    """A terminal in which one command runs, and then a shell that stays."""

    def __init__(self, place, *words):
        self.socket, self.place = str(place.path / "tmux"), place
        command = f"{shlex.join(str(word) for word in words)}; echo ended with $?; stty -a; exec cat"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", command)

    def tmux(self, *words):
        done = subprocess.run(["tmux", "-S", self.socket, *words], env=self.place.env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"tmux {words}: {done.stderr}"
        return done.stdout

    def lines(self):
        return self.tmux("capture-pane", "-p").splitlines()

    def shows(self, *texts, but=()):
        def all_there():
            screen = "\n".join(self.lines())
            return all(text in screen for text in texts) and not any(text in screen for text in but) and screen

        return wait_until(all_there, what=f"{texts} on the screen, and not {but}")

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def is_clean(self):
        """Not on the alternate screen, with a cursor, in the modes a shell has."""
        assert self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]
        self.shows(" icanon", " echo ", but=["-echo "])


@pytest.fixture
def terminal(service):
    """top in a terminal, over a rank with 200 idle threads, a busy one, and fibers that wait for a database."""
    told = Told(service, OMPI_COMM_WORLD_RANK=3)
    told.do("idle work 199", "busy burn 1", "hold db 50", "enter main")
    wait_until(lambda: len(service.rows("lanes")) == 251, what="all lanes are known")
    terminal = Terminal(service, service.lane, "top", "-d", "0.2")
    terminal.told = told
    yield terminal
    terminal.tmux("kill-server")
    told.program.kill()
    told.program.wait()


def test_busy_lanes_come_first_and_idle_ones_are_one_line(terminal):
    screen = terminal.shows("rank 3", "199 idle", "50 idle", "burner", "1 busy").splitlines()
    assert all(len(line) <= 80 for line in screen) and len(screen) <= 24
    order = [next(i for i, line in enumerate(screen) if text in line) for text in ("CPU", "run ", "rank 3", "burner", "199 idle")]
    assert order == sorted(order)
    assert screen[order[3]].rstrip().endswith("burn")
    assert any("50 idle" in line and line.rstrip().endswith("db") for line in screen)
    assert any("main" in line and "1 idle" not in line for line in screen)


def test_keys_sort_filter_unfold_pause_and_call_the_roll(terminal):
    terminal.shows("199 idle", "by cpu")
    terminal.keys("s")
    terminal.shows("by age")
    terminal.keys("s", "s", "s")
    terminal.shows("by cpu")
    terminal.keys("/", "d", "b", "Enter")
    terminal.shows("; only db", "50 idle", but=["199 idle", "burner"])
    terminal.keys("i")
    terminal.shows("held (holder)", but=["50 idle"])
    terminal.keys("i", "/", "BSpace", "BSpace", "Enter")
    terminal.shows("199 idle", but=["only"])
    terminal.keys("/", "x", "y", "z", "Escape")
    terminal.shows("199 idle", but=["only"])
    terminal.keys("w")
    terminal.shows("RANKS", "burn", "db", but=["199 idle"])
    terminal.keys("w")
    terminal.shows("199 idle")
    terminal.keys("p")
    terminal.shows("PAUSED")
    terminal.told.do("enter later")
    terminal.keys("p")
    terminal.shows("later", but=["PAUSED"])
    terminal.keys("h")
    terminal.shows("the roll call; once more goes back")
    terminal.keys("q")
    terminal.shows("ended with 0")
    terminal.is_clean()


def test_it_follows_the_size_of_its_terminal_and_scrolls(terminal):
    terminal.shows("199 idle")
    terminal.tmux("resize-window", "-x", "120", "-y", "40")
    terminal.keys("i")
    wait_until(lambda: len([line for line in terminal.lines() if "held" in line]) > 21, what="forty lines are used")
    terminal.keys("End")
    terminal.shows("pool", but=["burner"])
    terminal.keys("Home")
    terminal.shows("burner")
    terminal.tmux("resize-window", "-x", "30", "-y", "5")
    wait_until(lambda: len(terminal.lines()) <= 5 and "run " in terminal.lines()[3], what="five lines are used")
    terminal.tmux("resize-window", "-x", "80", "-y", "24")
    terminal.shows("held")
    terminal.keys("q")
    terminal.shows("ended with 0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_terminal_clean(terminal, number):
    terminal.shows("199 idle")
    parent = int(terminal.tmux("display-message", "-p", "#{pane_pid}"))
    (child,) = [int(pid) for pid in open(f"/proc/{parent}/task/{parent}/children").read().split()]
    os.kill(child, number)
    terminal.shows(f"ended with {128 + number}")
    terminal.is_clean()


def test_a_daemon_that_goes_and_comes_back_is_no_end(terminal, service):
    terminal.shows("199 idle")
    service.daemon.kill()
    service.daemon.wait()
    terminal.shows("no daemon answers", but=["199 idle"])
    service.serve()
    terminal.shows("199 idle")


def test_without_a_terminal_it_is_text_once(service):
    told = Told(service)
    told.do("idle work 10", "enter outer", "enter inner")
    wait_until(lambda: len(service.rows("lanes")) == 11, what="all lanes are known")
    text = wait_until(lambda: "10 idle" in (text := service.command("top", "-d", "0.1")) and text, what="all ten are idle")
    assert "1 run, 1 rank, 11 lanes" in text.splitlines()[0]
    assert "outer > inner" in text and "\033" not in text
    assert "10 idle" not in service.command("top", "-d", "0.1", "--filter", "inner")
    told.program.kill()
    told.program.wait()


def test_the_share_of_a_processor_is_that_of_the_last_looks(service):
    told = Told(service)
    told.do("busy burn 1", "idle work 1")

    def shares():
        lines = [line.split() for line in service.command("top", "-d", "1").splitlines()]
        found = {words[5]: int(words[0]) for words in lines if len(words) > 5 and words[1] == "%" and words[5] in ("burner", "pool")}
        return found.get("burner", 0) > 3 and found

    found = wait_until(shares, what="the busy one has its share of a processor")
    assert found["burner"] <= 110 and found["pool"] < 3
    told.program.kill()
    told.program.wait()


def test_without_a_daemon_it_says_so(place):
    assert "no daemon" in place.run(place.lane, "top", status=1).stderr_text
    assert "--sort is cpu" in place.run(place.lane, "top", "--sort", "size", status=2).stderr_text
