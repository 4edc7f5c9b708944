"""The notice to stop, given by real signals to real programs."""

from __future__ import annotations

import signal
import subprocess

from .support import YardTest, end

# A program says when it is ready; the test then sends the signal.
READY = "\nprint('ready', flush=True)\n"
WAIT_UNTIL_TOLD = "while not trainyard.stopping(): time.sleep(0.01)\n"
WAIT_FOR_EVER = "while True: time.sleep(0.01)\n"


class Stop(YardTest):
    def stopped(self, program: str) -> tuple[str, int]:
        process = self.start(program)
        self.await_ready(process)
        process.send_signal(signal.SIGTERM)
        return end(process)

    def await_ready(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        if line != "ready\n":
            process.kill()
            self.fail(line + end(process)[0])

    def test_a_program_that_asks_ends_by_itself(self) -> None:
        out, code = self.stopped(
            "import trainyard, time; assert trainyard.grace_left() is None; trainyard.stopping()"
            + READY
            + WAIT_UNTIL_TOLD
            + "print(0 < trainyard.grace_left() <= 30)"
        )
        self.assertEqual((out, code), ("True\n", 0))

    def test_a_second_signal_does_not_cut_the_saving_short(self) -> None:
        out, code = self.stopped(
            "import os, signal, trainyard, time; trainyard.stopping()"
            + READY
            + WAIT_UNTIL_TOLD
            + "os.kill(os.getpid(), signal.SIGTERM); print('saved')"
        )
        self.assertEqual((out, code), ("saved\n", 0))

    def test_without_asking_the_signal_ends_the_program(self) -> None:
        out, code = self.stopped("import trainyard, time; trainyard.log(1, loss=1)" + READY + WAIT_FOR_EVER)
        self.assertEqual((out, code), ("", -signal.SIGTERM))

    def test_after_its_callbacks_the_program_ends_by_the_signal(self) -> None:
        out, code = self.stopped(
            """
import trainyard, time
@trainyard.on_stop
def save():
    for step in range(300): trainyard.log(step, loss=step)
    trainyard.checkpoint_saved("x"); print("saved", flush=True)
trainyard.on_stop(lambda: 1 / 0)
trainyard.on_stop(lambda: print("last", flush=True))
"""
            + READY
            + WAIT_FOR_EVER
        )
        self.assertEqual(code, -signal.SIGTERM, out)
        self.assertIn("ZeroDivisionError", out)
        self.assertEqual([line for line in out.splitlines() if line in ("saved", "last")], ["saved", "last"])
        self.assertEqual(self.points("loss")[-1], (299, 299.0))  # kept back until the end
        self.assertEqual(self.notes(), [{"note": "checkpoint_saved", "step": 299, "text": "x"}])

    def test_a_callback_may_leave_the_end_to_the_program(self) -> None:
        out, code = self.stopped(
            "import trainyard, time\ntold = []\ntrainyard.on_stop(lambda: told.append(1), end=False)"
            + READY
            + "while not told: time.sleep(0.01)\nprint('by itself')"
        )
        self.assertEqual((out, code), ("by itself\n", 0))

    def test_a_callback_may_leave_the_program(self) -> None:
        program = "import sys, trainyard, time; trainyard.on_stop(lambda: sys.exit(9))" + READY + WAIT_FOR_EVER
        self.assertEqual(self.stopped(program), ("", 9))

    def test_a_callback_that_comes_late_is_called_at_once(self) -> None:
        out, _ = self.stopped(
            "import trainyard, time; trainyard.stopping()"
            + READY
            + WAIT_UNTIL_TOLD
            + "trainyard.on_stop(lambda: print('late'))"
        )
        self.assertEqual(out, "late\n")

    def test_the_programs_own_handler_is_called_as_before(self) -> None:
        own = "signal.signal(signal.SIGTERM, lambda *_: print('own'));"
        ask = "trainyard.stopping();"
        for name, order in (("set before", own + ask), ("set after", ask + own + ask)):
            with self.subTest(name):
                program = "import signal, trainyard, time\n" + order + READY + WAIT_UNTIL_TOLD + "print('end')"
                out, code = self.stopped(program)
                self.assertEqual((out.split(), code), (["own", "end"], 0))

    def test_a_handler_that_passes_the_signal_back_is_called_once(self) -> None:
        out, code = self.stopped(
            """
import signal, trainyard, time
trainyard.stopping()
ours = signal.getsignal(signal.SIGTERM)
def own(*args):
    print("own")
    ours(*args)
signal.signal(signal.SIGTERM, own)
trainyard.stopping()
"""
            + READY
            + WAIT_UNTIL_TOLD
        )
        self.assertEqual((out, code), ("own\n", 0))

    def test_a_program_that_ignores_the_signal_hears_of_it(self) -> None:
        out, code = self.stopped(
            """
import signal, trainyard, time
told = []
signal.signal(signal.SIGTERM, signal.SIG_IGN)
trainyard.on_stop(lambda: told.append(1))
"""
            + READY
            + "while not told: time.sleep(0.01)\nprint('end')"
        )
        self.assertEqual((out, code), ("end\n", 0))

    def test_telling_from_a_handler_while_telling_does_not_hang(self) -> None:
        out, code = self.stopped(
            """
import trainyard, itertools
told = []
def note():
    for step in range(100):
        trainyard.log(step, loss=0)
        trainyard.checkpoint_saved("x")
    told.append(1)
trainyard.on_stop(note, end=False)
"""
            + READY
            + """
for step in itertools.count():
    trainyard.log(step, loss=1)
    if told: break
print("end")
"""
        )
        self.assertEqual((out, code), ("end\n", 0))

    def test_a_pool_of_forked_workers_can_be_ended(self) -> None:
        self.run_in_yard(
            """
            import multiprocessing, trainyard
            if __name__ == "__main__":
                trainyard.stopping()
                pool = multiprocessing.get_context("fork").Pool(2)
                assert pool.map(abs, [-1, -2]) == [1, 2]
                pool.terminate()
                pool.join()
                assert not trainyard.stopping()
            """
        )

    def test_a_signal_to_a_process_that_is_just_forked_is_not_lost(self) -> None:
        out = self.run_in_yard(
            """
            import os, signal
            # Registered first, it is called first: before the child has its own handler.
            os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
            import trainyard
            trainyard.stopping()
            child = os.fork()
            if not child:
                print("still here")
                os._exit(0)
            print(os.waitpid(child, 0)[1] == signal.SIGTERM, trainyard.stopping())
            """
        )
        self.assertEqual(out, "True False\n")

    def test_another_thread_cannot_ask_first(self) -> None:
        out = self.run_in_yard(
            """
            import threading, trainyard
            def ask(): print(trainyard.stopping(), trainyard.stopping())
            for _ in range(2):
                thread = threading.Thread(target=ask); thread.start(); thread.join()
            """
        )
        self.assertEqual(out.count("main thread"), 1, out)
        self.assertEqual(out.count("False False"), 2, out)

    def test_another_thread_may_ask_after_the_main_one(self) -> None:
        out, code = self.stopped(
            """
import threading, trainyard, time
trainyard.stopping()
def ask():
    while not trainyard.stopping(): time.sleep(0.01)
    print("heard")
thread = threading.Thread(target=ask); thread.start()
"""
            + READY
            + "thread.join()"
        )
        self.assertEqual((out, code), ("heard\n", 0))

    def test_without_a_known_grace_nobody_knows_what_is_left(self) -> None:
        for grace in ("", "soon", "-1", "nan"):
            with self.subTest(grace):
                self.environ["TRAINYARD_GRACE"] = grace
                out, code = self.stopped(
                    "import logging; logging.disable(); import trainyard, time; trainyard.stopping()"
                    + READY
                    + WAIT_UNTIL_TOLD
                    + "print(trainyard.grace_left())"
                )
                self.assertEqual((out, code), ("None\n", 0))
