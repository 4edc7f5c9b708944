"""Programs that end because they ran out of memory."""

from __future__ import annotations

import unittest

from trainyard import _memory

from .support import YardTest, end

GIB = 1 << 30
TORCH_TEXT = (
    "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 293.12 MiB "
    "is free. 16.00 GiB allowed; Including non-PyTorch memory, this process has 15.50 GiB memory in use."
)

# Frameworks as far as they matter here.
TORCH = """
import sys, types
class OutOfMemoryError(RuntimeError): pass
cuda = types.SimpleNamespace(memory_reserved=lambda: 5 << 30, mem_get_info=lambda: (0, 8 << 30))
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
"""


class XlaRuntimeError(RuntimeError):
    pass


class ResourceExhaustedError(Exception):
    pass


class OutOfMemoryError(RuntimeError):
    pass


class Describe(unittest.TestCase):
    def test_amounts_are_read_from_the_messages(self) -> None:
        for error, want in (
            (OutOfMemoryError(TORCH_TEXT), ("gpu", GIB, int(15.5 * GIB), int(139.8 * GIB))),
            (
                XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."),
                ("gpu", 16 * GIB, None, None),
            ),
            (
                ResourceExhaustedError("OOM when allocating tensor with shape[1024,2,1024] and type float on GPU:0"),
                ("gpu", 8 << 20, None, None),
            ),
            (
                ResourceExhaustedError("OOM when allocating tensor with shape[8] and type half on device:CPU:0"),
                ("host", 16, None, None),
            ),
            (MemoryError("Unable to allocate 2. TiB for an array"), ("host", 2048 * GIB, None, None)),
            (MemoryError(), ("host", None, None, None)),
            (
                RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes."),
                ("host", 8 * GIB, None, None),
            ),
        ):
            report = _memory.describe(error)
            assert report is not None, error
            self.assertEqual(tuple(report.get(name) for name in ("device", "requested", "used", "total")), want, error)
            self.assertTrue(report["text"].startswith(type(error).__name__ + ": "), report)

    def test_other_exceptions_are_none(self) -> None:
        for error in (ValueError("memory"), KeyboardInterrupt(), RuntimeError("CUDA error: an illegal memory access")):
            self.assertIsNone(_memory.describe(error))

    def test_an_exception_that_another_one_hides_counts(self) -> None:
        error = RuntimeError("training failed")
        error.__cause__ = MemoryError()
        report = _memory.describe(error)
        self.assertEqual(report and report["device"], "host")
        error.__cause__ = error  # a circle
        self.assertIsNone(_memory.describe(error))


class End(YardTest):
    def failed(self, program: str, **extra: str) -> str:
        out, code = end(self.start(program, **extra))
        self.assertEqual(code, 1, out)
        return out

    def test_the_exception_that_ends_a_program_is_reported_and_printed(self) -> None:
        out = self.failed(
            TORCH + "import trainyard\nraise OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB')"
        )
        self.assertIn("OutOfMemoryError: CUDA out of memory", out)
        self.assertEqual(
            self.notes(),
            [
                {
                    "note": "out_of_memory",
                    "device": "gpu",
                    "text": "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
                    "requested": 2 * GIB,
                    "used": 5 * GIB,
                    "total": 8 * GIB,
                }
            ],
        )

    def test_every_rank_reports_it(self) -> None:
        self.failed("import trainyard; trainyard.log(1, loss=1); raise MemoryError('full')", RANK="3")
        self.assertEqual(self.lines()[0]["text"], "MemoryError: full")

    def test_a_hook_of_the_program_is_called_too(self) -> None:
        out = self.failed(
            "import sys; sys.excepthook = lambda *given: print('mine', given[0].__name__)\n"
            "import trainyard; raise MemoryError"
        )
        self.assertEqual(out, "mine MemoryError\n")
        self.assertEqual(len(self.notes()), 1)

    def test_what_the_program_survives_is_not_reported(self) -> None:
        self.run_in_yard("import trainyard\ntry: raise MemoryError\nexcept MemoryError: pass")
        self.failed("import trainyard; raise ValueError")
        self.assertEqual(self.lines(), [])

    def test_a_framework_that_fails_does_not_hide_the_exception(self) -> None:
        out = self.failed("import sys, trainyard; sys.modules['torch'] = 7; raise RuntimeError('CUDA out of memory')")
        self.assertIn("RuntimeError: CUDA out of memory", out)
        self.assertEqual([note["text"] for note in self.notes()], ["RuntimeError: CUDA out of memory"])
