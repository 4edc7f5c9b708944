package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"trainyard/internal/agent"
	"trainyard/internal/agent/runtime"
	"trainyard/internal/agent/runtime/subprocess"
	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// TestMain lets the test binary be its own supervisor and watcher, as main does.
func TestMain(m *testing.M) {
	if status, is := subprocess.Run(os.Args, os.Stderr); is {
		os.Exit(status)
	}

	goleak.VerifyTestMain(m)
}

// realConfig is that of an agent with the real runtime.
func realConfig(t *testing.T, y *fakeYard) agent.Config {
	t.Helper()
	return realConfigIn(t, y, t.TempDir())
}

// realConfigIn is that of an agent with the real runtime and its data in a folder.
func realConfigIn(t *testing.T, y *fakeYard, dir string) agent.Config {
	t.Helper()
	cfg := config(t, y, newFakeRuntime())
	cfg.Dir = dir
	cfg.NewRuntime = func(p runtime.Preparation) (agent.Runtime, error) {
		return runtime.New(runtime.Options{Dir: cfg.Dir, Preparation: p, Log: cfg.Log, Clock: cfg.Clock})
	}

	return cfg
}

func realAssignment(run id.Run, command string) api.Assignment {
	as := assignment(run)
	as.Launch.Command, as.Launch.LogLimit, as.Launch.Grace = command, 64<<20, job.Duration(5*time.Second)
	as.Launch.Nodes, as.Launch.MasterPort = []string{"127.0.0.1"}, 29500

	return as
}

// lines returns what a program printed, without the yard's remarks.
func lines(t *testing.T, log []byte) []string {
	t.Helper()
	var all []string
	for r := logs.NewLines(logs.NewDecoder(bytes.NewReader(log))); ; {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}

		if err != nil {
			t.Fatalf("damaged log: %v", err)
		}

		if line.Stream == logs.Stdout {
			all = append(all, strings.TrimSuffix(string(line.Text), "\n"))
		}
	}
}

func TestARealProgramSurvivesAgentAndServer(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	cfg := realConfig(t, y)
	stop := launch(t, cfg)
	const count = 200
	as := realAssignment(
		"j1.1",
		fmt.Sprintf("cat data.txt; echo $$ > pid; for i in $(seq %d); do echo line $i; sleep 0.01; done; exit 5", count),
	)

	as.Launch.Workdir = y.ship(map[string]string{"data.txt": "from the workdir\n"})
	y.assign(as)

	got := func() []byte {
		if s := y.logs[rankKey{"j1.1", 0}]; s != nil {
			return s.data
		}

		return nil
	}

	y.await("the first lines", func() bool { return bytes.Contains(got(), []byte("line 3\n")) })
	y.restart()
	y.await("more lines after a restart of the server", func() bool { return bytes.Contains(got(), []byte("line 20\n")) })
	stop()
	launch(t, cfg)

	if end := y.awaitState("j1.1", job.RunEnded); end.ExitCode != 5 || end.Cause != job.CauseUserCode {
		t.Errorf("end %+v, want exit code 5", end)
	}

	y.awaitOutput("j1.1")

	want := []string{"from the workdir"}
	for i := range count {
		want = append(want, fmt.Sprintf("line %d", i+1))
	}

	y.mu.Lock()

	if diff := cmp.Diff(want, lines(t, got())); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}

	y.mu.Unlock()
	y.assign()
	gone := filepath.Join(cfg.Dir, "runs", "j1.1.0")
	y.await("the record to go", func() bool {
		_, err := os.Stat(gone)
		return os.IsNotExist(err)
	})
}

func TestARealProgramIsStoppedWhenItIsNotAssignedAnyMore(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	launch(t, realConfig(t, y))

	y.assign(
		realAssignment("j1.1", "echo up; sleep 1000"),
		realAssignment("j2.1", "trap 'echo bye; exit 0' TERM; echo up; while true; do sleep 0.05; done"),
	)

	for _, run := range []id.Run{"j1.1", "j2.1"} {
		y.await("output of "+string(run), func() bool {
			s := y.logs[rankKey{run, 0}]
			return s != nil && bytes.Contains(s.data, []byte("up"))
		})
	}

	term := realAssignment("j2.1", "")
	term.Stop = job.StopTerm
	y.assign(term)

	if end := y.awaitState("j2.1", job.RunEnded); !end.Signalled {
		t.Errorf("end %+v, want signalled", end)
	}

	for _, run := range []id.Run{"j1.1", "j2.1"} {
		y.awaitOutput(run)
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	if got := lines(t, y.logs[rankKey{"j2.1", 0}].data); !cmp.Equal(got, []string{"up", "bye"}) {
		t.Errorf("output %q", got)
	}
}

func TestFilesThatCannotBeHadFailTheLaunch(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	launch(t, realConfig(t, y))
	as := realAssignment("j1.1", "true")
	as.Launch.Workdir = strings.Repeat("0", 64)
	y.assign(as)

	end := y.awaitState("j1.1", job.RunEnded)
	if end.Cause != job.CauseLaunchFailed || !strings.Contains(end.Reason, "fetch the manifest") {
		t.Errorf("end %+v", end)
	}
}
