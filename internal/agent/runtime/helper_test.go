package runtime

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/runtime/subprocess"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

func TestTheHelperRunsFromMemory(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}

	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()

		program, err := subprocess.Load(content)
		if err != nil {
			t.Fatal(err)
		}

		begun, ending := pipe(t), pipe(t)
		y := newYard(t, mode, func(o *Options) { o.Exe = program.Path() })
		run := y.script(fmt.Sprintf("echo >%s; read x <%s; echo done", begun, ending))

		receive(t, begun)
		y.await(run, job.RunRunning)

		pid, err := rundir.LockHolder(y.runDir(run))
		if err != nil || pid == 0 {
			t.Fatalf("the supervisor is process %d, %v", pid, err)
		}

		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !strings.HasPrefix(exe, "/memfd:trainyard") {
			t.Errorf("the supervisor runs %s, %v", exe, err)
		}

		// It goes on without the agent that loaded it.
		y.opts.Exe = ""
		y.reopen()

		if err := program.Close(); err != nil {
			t.Error(err)
		}

		release(t, ending)

		if s := y.end(run); s.ExitCode != 0 || y.output(run)[logs.Stdout] != "done\n" {
			t.Errorf("it ended as %+v and wrote %q", s, y.output(run)[logs.Stdout])
		}
	})
}
