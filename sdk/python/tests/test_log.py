"""What programs tell, and how it arrives in the files."""

from __future__ import annotations

import time
import unittest

from .support import YardTest


class Log(YardTest):
    def test_values_arrive_with_step_and_time(self) -> None:
        before = time.time()
        self.run_in_yard("import trainyard; trainyard.log(10, loss=0.5, acc=1)")
        (line,) = self.lines()
        self.assertEqual((line["step"], line["metrics"]), (10, {"loss": 0.5, "acc": 1.0}))
        self.assertLess(abs(line["at"] - before), 600)

    def test_a_mapping_holds_names_that_are_no_words(self) -> None:
        self.run_in_yard("import trainyard; trainyard.log(step=1, metrics={'val/loss': 2}, loss=3)")
        self.assertEqual(self.lines()[0]["metrics"], {"val/loss": 2.0, "loss": 3.0})

    def test_no_number_is_told_as_text(self) -> None:
        self.run_in_yard("import trainyard as t; t.log(1, a=float('nan'), b=float('inf'), c=-float('inf'))")
        self.assertEqual(self.lines()[0]["metrics"], {"a": "NaN", "b": "Infinity", "c": "-Infinity"})

    def test_what_has_item_is_a_number(self) -> None:
        self.run_in_yard(
            """
            import decimal, fractions, trainyard
            class Tensor:
                def __init__(self, value): self.value = value
                def item(self): return self.value
            class Variable:
                def __float__(self): return 4.0
            others = {"d": decimal.Decimal("1.5"), "e": fractions.Fraction(1, 2)}
            trainyard.log(Tensor(3), others, a=Tensor(0.25), b=Variable(), c=True)
            """
        )
        (line,) = self.lines()
        self.assertEqual((line["step"], line["metrics"]), (3, {"a": 0.25, "b": 4.0, "c": 1.0, "d": 1.5, "e": 0.5}))

    def test_bad_values_are_left_out_and_told_of_once(self) -> None:
        out = self.run_in_yard(
            """
            import trainyard
            class Broken:
                def item(self): raise RuntimeError("a tensor with 2 elements")
            names = {3: 1.0, "": 1.0, "n" * 129: 1.0}
            for step in range(3):
                trainyard.log(step, names, text="0.5", none=None, tensor=Broken(), big=10**400)
            trainyard.log(float("nan"), loss=1)
            trainyard.log(-1, loss=1)
            trainyard.log(7, loss=0.5, text="0.5")
            """
        )
        self.assertEqual([(x["step"], x["metrics"]) for x in self.lines()], [(7, {"loss": 0.5})])
        self.assertEqual(out.count("further warnings"), 3, out)  # a name, a value, a step

    def test_too_many_metrics_are_cut(self) -> None:
        self.run_in_yard("import trainyard; trainyard.log(1, {f'm{i}': i for i in range(100)})")
        self.assertEqual(len(self.lines()[0]["metrics"]), 64)

    def test_only_the_first_process_of_a_run_writes(self) -> None:
        program = "import trainyard; trainyard.log(1, loss=1); trainyard.progress(1); trainyard.checkpoint_saved('x')"
        for ranks in ({"RANK": "1"}, {"LOCAL_RANK": "1"}, {"NODE_RANK": "1"}, {"RANK": "8", "LOCAL_RANK": "0"}):
            with self.subTest(ranks):
                self.run_in_yard(program, **ranks)
                self.assertEqual((self.lines(), self.progress.exists()), ([], False))
        self.run_in_yard(program, LOCAL_RANK="0")
        self.assertEqual(len(self.lines()), 2 + 1)

    def test_another_process_writes_when_told(self) -> None:
        self.run_in_yard("import trainyard; trainyard.configure(write=True); trainyard.log(1, loss=1)", RANK="3")
        self.run_in_yard("import trainyard; trainyard.configure(write=False); trainyard.log(2, loss=1)")
        self.assertEqual(self.points("loss"), [(1, 1.0)])

    def test_a_rank_that_a_program_sets_itself_counts(self) -> None:
        self.run_in_yard("import trainyard, os; os.environ['RANK'] = '1'; trainyard.log(1, loss=1)")
        self.assertEqual(self.lines(), [])


class Anything(YardTest):
    def test_no_value_ends_a_training_and_every_line_can_be_read(self) -> None:
        self.run_in_yard(
            """
            import logging, math, random, trainyard
            logging.disable()
            class Odd:
                def __init__(self, value): self.value = value
                def item(self):
                    if isinstance(self.value, Exception): raise self.value
                    return self.value
                def __repr__(self): raise ValueError("cannot even be shown")
            chance = random.Random(7)
            plain = [0, 1, -1, 0.5, 1e308, -1e-308, 2**70, 10**400, True, math.nan, math.inf, -math.inf]
            plain += [None, "x", b"x", [], {}, (), 1j, object(), print, range(3), Exception]
            values = plain + [Odd(v) for v in plain] + [Odd(ValueError("no")), Odd(Odd(1))]
            names = ["a", "b/c", "\\u20ac", "\\ud800", "quote'\\"", "new\\nline", "\\0", ""]
            names += ["n" * 128, "\\u20ac" * 43, 5, None, ()]
            for step in range(3000):
                trainyard.log(step, {chance.choice(names): chance.choice(values) for _ in range(chance.randrange(5))})
            trainyard.log(3000, done=1)
            """
        )
        self.assertEqual(self.points("done"), [(3000, 1.0)])
        names = {name for line in self.lines() for name in line["metrics"]}
        self.assertGreaterEqual(names, {"a", "b/c", "\u20ac", "new\nline", "n" * 128})
        self.assertEqual(max(len(name.encode("utf-8", "replace")) for name in names), 128)


class Rates(YardTest):
    def test_the_newest_of_many_arrives_at_the_end(self) -> None:
        self.run_in_yard(
            """
            import trainyard
            for step in range(50_000):
                trainyard.log(step, loss=step)
                trainyard.log(step, val_loss=-step)
                trainyard.progress(step, 50_000)
            """
        )
        self.assertLess(len(self.lines()), 5_000)
        self.assertEqual(self.points("loss")[0], (0, 0.0))
        self.assertEqual(self.points("loss")[-1], (49_999, 49_999.0))
        self.assertEqual(self.points("val_loss")[-1], (49_999, -49_999.0))
        self.assertEqual(self.told_progress(), {"done": 49_999, "work": 50_000})

    def test_what_is_kept_back_arrives_while_the_program_is_silent(self) -> None:
        self.run_in_yard(
            """
            import os, time, trainyard
            for step in range(300):
                trainyard.log(step, loss=step)
                trainyard.progress(step)
            path = os.environ["TRAINYARD_METRICS_FILE"]
            while '"step":299' not in open(path).read() or "299" not in open(os.environ["TRAINYARD_PROGRESS"]).read():
                time.sleep(0.02)
            """
        )
        self.assertEqual(self.points("loss")[-1], (299, 299.0))

    def test_what_is_told_while_the_interpreter_ends_arrives(self) -> None:
        self.run_in_yard(
            """
            import atexit
            atexit.register(lambda: [trainyard.log(step, late=step) for step in range(300)])
            import trainyard
            atexit.register(lambda: [trainyard.log(step, early=step) for step in range(300)])
            """
        )
        self.assertEqual([self.points(name)[-1] for name in ("early", "late")], [(299, 299.0), (299, 299.0)])

    def test_flush_writes_at_once(self) -> None:
        self.run_in_yard(
            "import os, trainyard; [trainyard.log(i, loss=i) for i in range(300)]; trainyard.flush(); os._exit(0)"
        )
        self.assertEqual(self.points("loss")[-1], (299, 299.0))


class Together(YardTest):
    def test_threads_and_processes_write_whole_lines(self) -> None:
        self.run_in_yard(
            """
            import multiprocessing, threading, trainyard
            def speak(who):
                for step in range(300):
                    trainyard.log(step, {f"m{who}.{step % 20}": step, "filler" * 20: 1})
            def process(who):
                threads = [threading.Thread(target=speak, args=(f"{who}{n}",)) for n in range(3)]
                [t.start() for t in threads]; [t.join() for t in threads]
                trainyard.flush()
            if __name__ == "__main__":
                context = multiprocessing.get_context("fork")
                children = [context.Process(target=process, args=(c,)) for c in "abc"]
                [c.start() for c in children]
                process("p")
                [c.join() for c in children]
                assert [c.exitcode for c in children] == [0, 0, 0]
            """
        )
        names = {name for line in self.lines() for name in line["metrics"] if name.startswith("m")}
        self.assertEqual({name[1] for name in names}, set("abcp"))

    def test_a_forked_child_does_not_repeat_what_its_parent_keeps_back(self) -> None:
        self.run_in_yard(
            """
            import os, sys, trainyard
            for step in range(300):
                trainyard.log(step, loss=step)
            if os.fork() == 0:
                trainyard.log(5, child=5)
                sys.exit()
            os.wait()
            """
        )
        steps = [step for step, _ in self.points("loss")]
        self.assertEqual((steps, steps[-1]), (sorted(set(steps)), 299))
        self.assertEqual(self.points("child"), [(5, 5.0)])


class Progress(YardTest):
    def test_it_arrives_in_both_files(self) -> None:
        self.run_in_yard("import trainyard; trainyard.progress(3, total=10)")
        (line,) = self.lines()
        self.assertEqual((line["done"], line["total"]), (3, 10))
        self.assertEqual(self.told_progress(), {"done": 3, "work": 10})
        self.assertEqual([p.name for p in self.folder.glob("progress*")], ["progress.json"])

    def test_an_unknown_total_is_left_out(self) -> None:
        self.run_in_yard("import trainyard; trainyard.progress(0.5)")
        self.assertNotIn("total", self.lines()[0])
        self.assertEqual(self.told_progress(), {"done": 0.5})


class Checkpoints(YardTest):
    def test_they_are_told_with_path_and_step(self) -> None:
        self.run_in_yard(
            """
            import pathlib, trainyard
            trainyard.checkpoint_restored("/c/1", step=40)
            trainyard.log(41, loss=1)
            trainyard.checkpoint_saved(pathlib.Path("/c/2"))
            """
        )
        self.assertEqual(
            self.notes(),
            [
                {"note": "checkpoint_restored", "step": 40, "text": "/c/1"},
                {"note": "checkpoint_saved", "step": 41, "text": "/c/2"},
            ],
        )

    def test_the_folder_is_the_yards_and_is_made(self) -> None:
        out = self.run_in_yard("import trainyard; print(trainyard.checkpoint_dir(), trainyard.checkpoint_dir('else'))")
        folder = self.folder / "ckpt"
        self.assertEqual(out.split(), [str(folder), str(folder)])
        self.assertTrue(folder.is_dir())

    def test_a_folder_that_cannot_be_made_ends_nothing(self) -> None:
        (self.folder / "ckpt").write_text("a file is in the way")
        out = self.run_in_yard("import trainyard; print(trainyard.checkpoint_dir())")
        self.assertIn("cannot create the checkpoint folder", out)


class Targets(YardTest):
    def judge(self, target: str, calls: str) -> list[str]:
        return self.run_in_yard(f"import trainyard as t\nprint({calls})", TRAINYARD_TARGET=target).split()

    def test_reached_by_what_is_logged_and_stays_so(self) -> None:
        calls = "[(t.log(step, val=value), t.target_reached())[1] for step, value in enumerate((0.5, 0.4, 0.3, 0.9))]"
        out = self.judge('{"metric":"val","at_most":0.35}', "*" + calls)
        self.assertEqual(out, ["False", "False", "True", "True"])
        self.assertEqual(self.notes(), [{"note": "target_reached", "step": 2, "text": "val=0.3"}])

    def test_bounds(self) -> None:
        for target, value, want in (
            ('{"metric":"acc","at_least":0.9}', "0.9", True),
            ('{"metric":"acc","at_least":0.9}', "0.8", False),
            ('{"metric":"acc","at_least":0.9}', "float('nan')", False),
            ('{"metric":"acc","at_most":0.9}', "float('nan')", False),
            ('{"metric":"acc","at_least":1,"at_most":2}', "3", False),
            ('{"metric":"acc","at_least":1,"at_most":2}', "1.5", True),
            ("", "1", False),
        ):
            with self.subTest(target=target, value=value):
                self.assertEqual(self.judge(target, f"t.target_reached({value})"), [str(want)])

    def test_one_that_makes_no_sense_is_told_of(self) -> None:
        for target in ("{", "[]", "{}", '{"metric":"a"}', '{"metric":"a","at_most":"x"}'):
            with self.subTest(target):
                out = self.run_in_yard("import trainyard as t; assert not t.target_reached(1)", TRAINYARD_TARGET=target)
                self.assertIn("invalid TRAINYARD_TARGET", out)


class Trouble(YardTest):
    PROGRAM = "import trainyard\nfor i in range(9): trainyard.log(i, {f'm{i}': i}); trainyard.progress(i)"

    def test_a_folder_that_is_gone_ends_nothing(self) -> None:
        gone = str(self.folder / "gone" / "file")
        out = self.run_in_yard(self.PROGRAM, TRAINYARD_METRICS_FILE=gone, TRAINYARD_PROGRESS=gone)
        self.assertEqual(out.count("further warnings"), 2, out)

    def test_a_full_disk_ends_nothing(self) -> None:
        out = self.run_in_yard(self.PROGRAM, TRAINYARD_METRICS_FILE="/dev/full", TRAINYARD_PROGRESS="")
        self.assertEqual(out.count("cannot report to Trainyard"), 1, out)

    def test_warnings_as_errors_end_nothing(self) -> None:
        program = "import warnings; warnings.simplefilter('error')\n" + self.PROGRAM
        self.run_in_yard(program, TRAINYARD_METRICS_FILE="/dev/full")

    def test_an_agent_that_names_no_files_is_told_nothing(self) -> None:
        out = self.run_in_yard(self.PROGRAM, TRAINYARD_METRICS_FILE="", TRAINYARD_PROGRESS="")
        self.assertEqual(out, "")

    def test_a_line_cut_off_by_a_full_disk_spoils_no_other(self) -> None:
        self.run_in_yard(
            """
            import resource, signal, trainyard
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            trainyard.log(1, a=1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (80, hard))
            trainyard.log(2, b=2)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            trainyard.log(3, c=3)
            """
        )
        text = self.metrics.read_text().splitlines()
        self.assertEqual(len(text), 3, text)
        self.assertTrue(text[0].endswith("}"), text)
        self.assertFalse(text[1].endswith("}}"), text)
        self.assertIn('"step":3', text[2])


if __name__ == "__main__":
    unittest.main()
