package runtime

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// play is a program with child processes. It writes to $READY when it may be stopped.
func play(part string) int {
	told := make(chan os.Signal, 10)

	switch part {
	case "training": // saves a checkpoint, for which it needs its workers
		signal.Notify(told, unix.SIGTERM)
		var workers []*exec.Cmd
		for range 2 {
			workers = append(workers, begin("sleep", "1000"))
		}

		ready()
		<-told
		time.Sleep(200 * time.Millisecond)

		left := 0
		for _, w := range workers {
			if p, ok := process.Read(w.Process.Pid); ok && !p.Dead {
				left++
			}

			_ = w.Process.Kill()
			_ = w.Wait()
		}

		fmt.Printf("saved with %d workers\n", left)
	case "child": // saves a checkpoint and prints how many times it was signalled
		signal.Notify(told, unix.SIGTERM)
		ready()
		<-told
		time.Sleep(200 * time.Millisecond)
		fmt.Printf("saved, told %d times\n", 1+len(told))
	case "wrapper": // starts another program and does not handle signals
		_ = begin(os.Args[0], "play", "child").Wait()
	case "launcher": // starts another program and forwards signals
		signal.Notify(told, unix.SIGTERM)
		child := begin(os.Args[0], "play", "child")
		go func() {
			for range told {
				_ = child.Process.Signal(unix.SIGTERM)
			}
		}()

		_ = child.Wait()
	case "deaf": // starts another program and ignores signals
		signal.Ignore(unix.SIGTERM)
		_ = begin(os.Args[0], "play", "child").Wait()
		time.Sleep(time.Hour)
	}

	return 0
}

// begin starts a program with the same output.
func begin(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}

	return cmd
}

func ready() {
	if err := os.WriteFile(os.Getenv("READY"), []byte("ready\n"), 0); err != nil {
		panic(err)
	}
}

func TestAStopLeavesAProgramItsOwnProcesses(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name, script string
		grace        time.Duration
		output       string
		code         int
	}{
		{"a training with workers", `$PLAY training`, time.Minute, "saved with 2 workers\n", 0},
		{"in place of the script", `exec $PLAY training`, time.Minute, "saved with 2 workers\n", 0},
		{"in the background of the script", `$PLAY training & wait`, time.Minute, "saved with 2 workers\n", 143},
		{"in the background and deaf to a hang-up", `nohup $PLAY training & wait`, time.Minute, "saved with 2 workers\n", 143},
		{"a script within the script", `bash -c '$PLAY training; true'`, time.Minute, "saved with 2 workers\n", 143},
		{"behind a wrapper that dies of it", `exec $PLAY wrapper`, time.Minute, "saved, told 1 times\n", 143},
		{"behind a launcher that passes it on", `exec $PLAY launcher`, time.Minute, "saved, told 1 times\n", 0},
		{"behind one that hears nothing, at half of the grace", `exec $PLAY deaf`, 2 * time.Second, "saved, told 1 times\n", 137},
		{"a script that saves by another program", `trap '$PLAY save; sleep 0.3; echo saved' TERM; while :; do sleep 0.01; done & echo > $READY; wait || true; wait || true; exit 7`, time.Minute, "saved\n", 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			started := pipe(t)
			run := y.start(
				api.Launch{
					Command: test.script,
					Env:     map[string]string{"READY": started, "PLAY": self + " play"},
					Grace:   job.Duration(test.grace),
				},
			)

			receive(t, started)

			if err := y.Stop(run, 0, job.StopTerm); err != nil {
				t.Fatal(err)
			}

			s := y.end(run)
			if got := y.output(run)[logs.Stdout]; got != test.output {
				t.Errorf("it wrote %q, want %q (%s; %q)", got, test.output, s.Reason, y.output(run)[logs.Stderr])
			}

			if s.ExitCode != test.code || !s.Signalled {
				t.Errorf("it ended with %d: %s", s.ExitCode, s.Reason)
			}
		})
	}
}
