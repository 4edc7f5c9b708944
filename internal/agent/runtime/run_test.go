package runtime

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

func TestAProgramEndsByItself(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		launch api.Launch
		code   int
		signal string
		cause  job.Cause
		reason string
	}{
		{"well", api.Launch{Command: "echo fine"}, 0, "", "", ""},
		{
			"with an exit code",
			api.Launch{Command: "echo why it failed; exit 3"},
			3,
			"",
			job.CauseUserCode,
			"exit code 3; last line of output: why it failed",
		},
		{"at the first line that fails", api.Launch{Command: "false\necho never"}, 1, "", job.CauseUserCode, "exit code 1"},
		{"by a signal", api.Launch{Command: "kill -SEGV $$"}, 139, "SIGSEGV", job.CauseUserCode, "killed by SIGSEGV"},
		{
			"because there is no such program",
			api.Launch{Command: "/no/such/program"},
			127,
			"",
			job.CauseUserCode,
			"exit code 127",
		},
		{"with closed output", api.Launch{Command: "exec 1>&- 2>&-; exit 4"}, 4, "", job.CauseUserCode, "exit code 4"},
		{"with empty input", api.Launch{Command: "if read x; then exit 1; fi; exit 5"}, 5, "", job.CauseUserCode, ""},
		{
			"short of GPU memory",
			api.Launch{
				Command: "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB' >&2; exit 1",
				GPUs:    []int{0},
			},
			1,
			"",
			job.CauseGPUOOM,
			"out of GPU memory: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
		},
		{
			"short of GPU memory in XLA",
			api.Launch{
				Command: "echo 'RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes'; kill -ABRT $$",
				GPUs:    []int{0},
			},
			134,
			"SIGABRT",
			job.CauseGPUOOM,
			"RESOURCE_EXHAUSTED",
		},
		{
			"short of GPU memory in TensorFlow",
			api.Launch{Command: "echo 'ResourceExhaustedError: OOM when allocating tensor'; exit 1", GPUs: []int{0}},
			1,
			"",
			job.CauseGPUOOM,
			"out of GPU memory: ResourceExhaustedError: OOM when allocating tensor",
		},
		{
			"short of GPU memory in cuBLAS",
			api.Launch{Command: "echo 'CUDA error: CUBLAS_STATUS_ALLOC_FAILED'; exit 1", GPUs: []int{0}},
			1,
			"",
			job.CauseGPUOOM,
			"CUBLAS_STATUS_ALLOC_FAILED",
		},
		{
			"short of host memory although it has a GPU",
			api.Launch{
				Command: "echo 'DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.'; exit 1",
				GPUs:    []int{0},
			},
			1,
			"",
			job.CauseHostOOM,
			"out of memory: DefaultCPUAllocator: not enough memory",
		},
		{
			"well after it was short of GPU memory",
			api.Launch{Command: "echo CUDA out of memory; exit 0", GPUs: []int{0}},
			0,
			"",
			"",
			"",
		},
		{
			"badly with words about GPU memory but without a GPU",
			api.Launch{Command: "echo CUDA out of memory; exit 1"},
			1,
			"",
			job.CauseUserCode,
			"exit code 1",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			run := y.start(tt.launch)
			s := y.end(run)
			check(t, s, tt.code, tt.signal, tt.cause, false, tt.reason)

			if s.Started.IsZero() || s.Started.After(s.Ended) {
				t.Errorf("started %v, ended %v", s.Started, s.Ended)
			}

			if strings.Contains(y.output(run)[logs.Stdout], "never") {
				t.Error("the script went on after a line that failed")
			}
		})
	}
}

func TestOutputIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	tests := []struct{ name, command, stdout, stderr string }{
		{"two streams", `echo out; echo err >&2`, "out\n", "err\n"},
		{"binary", `printf '\x00\xff\n\r\x1b'`, "\x00\xff\n\r\x1b", ""},
		{"a line of a million bytes", `head -c 1000000 /dev/zero | tr '\0' x; echo`, strings.Repeat("x", 1000000) + "\n", ""},
		{"no line end", `printf abc`, "abc", ""},
	}

	for _, tt := range tests {
		run := y.script(tt.command)
		y.end(run)

		got := y.output(run)
		if got[logs.Stdout] != tt.stdout || got[logs.Stderr] != tt.stderr {
			t.Errorf("%s: the output changed: %.60q and %.60q", tt.name, got[logs.Stdout], got[logs.Stderr])
		}
	}
}

func TestOutputPastTheLimitIsCut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	run := y.start(api.Launch{Command: "head -c 5000 /dev/zero | tr '\\0' x", LogLimit: 1000})
	s := y.end(run)
	check(t, s, 0, "", "", false, "")

	got := y.output(run)
	if n := len(got[logs.Stdout]); n != 1000 {
		t.Errorf("%d bytes of output are kept, want 1000", n)
	}

	for _, want := range []string{"output is cut here: the limit of 1000 bytes is reached", "4000 bytes of output were dropped"} {
		if !strings.Contains(got[logs.Yard], want) {
			t.Errorf("remarks %q do not say %q", got[logs.Yard], want)
		}
	}
}

func TestOutputIsThereWhileTheProgramRuns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	hold := pipe(t)
	run := y.script("echo first; read x < " + hold + "; echo second")
	y.await(run, job.RunRunning)
	y.follow(run, "first\n")
	release(t, hold)
	y.end(run)

	if got := y.output(run)[logs.Stdout]; got != "first\nsecond\n" {
		t.Errorf("output = %q", got)
	}
}

func TestTwoStartsOfARankGiveOneProcess(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	marks := t.TempDir() + "/marks"
	s := y.spec(api.Launch{Command: "echo x >> " + marks})

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := y.Start(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	y.end(s.Run)

	if err := y.Start(t.Context(), s); err != nil {
		t.Error(err)
	}

	y.reopen()

	if err := y.Start(t.Context(), s); err != nil {
		t.Error(err)
	}

	y.end(s.Run)

	if n := count(t, marks); n != 1 {
		t.Errorf("the program ran %d times", n)
	}
}

func TestTwoSupervisorsOfARankGiveOneProcess(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	marks := t.TempDir() + "/marks"
	rk, err := y.createRunDir(y.spec(api.Launch{Command: "echo x >> " + marks}))
	if err != nil {
		t.Fatal(err)
	}

	if err := y.prepare(t.Context(), rk); err != nil {
		t.Fatal(err)
	}

	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			s, err := y.spawn(rk)
			if err != nil {
				t.Error(err)
				return
			}

			y.last(s)

			if code := s.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("a supervisor ended with %d", code)
			}
		})
	}

	all.Wait()

	if n := count(t, marks); n != 1 {
		t.Errorf("the program ran %d times", n)
	}
}

func TestManyRunsAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	var runs []id.Run
	for i := range 20 {
		runs = append(runs, y.script(fmt.Sprintf("echo run %d; exit %d", i, i)))
	}

	for i, run := range runs {
		s := y.end(run)
		if s.ExitCode != i {
			t.Errorf("exit code of run %d = %d", i, s.ExitCode)
		}

		if got := y.output(run)[logs.Stdout]; got != fmt.Sprintf("run %d\n", i) {
			t.Errorf("output of run %d = %q", i, got)
		}
	}

	if n := len(y.List()); n != 20 {
		t.Errorf("%d ranks are listed", n)
	}
}

func TestTheEnvironmentReachesTheProgram(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(o *Options) { o.Environ = []string{"PATH=" + os.Getenv("PATH"), "AGENT_SECRET=x"} })
	run := y.start(api.Launch{
		Name:    "train",
		Command: `echo "$TRAINYARD_JOB_NAME|$GREETING|${CUDA_VISIBLE_DEVICES-unset}|${AGENT_SECRET-unset}|$PWD"`,
		Env:     map[string]string{"GREETING": "hello world", "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
	})

	y.end(run)

	want := "train|hello world||unset|" + y.runDir(run) + "/work\n"
	if got := y.output(run)[logs.Stdout]; got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
}
