package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/logs"
)

// A program with input waits for it, also after whoever wrote first has left.
func TestAProgramReadsItsInput(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		run := y.start(api.Launch{Input: true, Command: "echo up\nread a\nread b\necho $a then $b, line $LINENO"})
		path := ""

		for deadline := time.Now().Add(5 * time.Minute); path == "" && time.Now().Before(deadline); {
			for _, name := range []string{rundir.InputPipe, filepath.Join(rundir.RequestsDir, rundir.InputPipe)} {
				if _, err := os.Stat(filepath.Join(y.runDir(run), name)); err == nil {
					path = filepath.Join(y.runDir(run), name)
				} else if !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
		}

		y.follow(run, "up")

		for _, line := range []string{"one\n", "two\n"} {
			in, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY, 0)
			if err == nil {
				_, err = in.WriteString(line)
			}
			if err == nil {
				err = in.Close()
			}

			if err != nil {
				t.Fatal(err)
			}
		}

		y.end(run)

		if out := y.output(run)[logs.Stdout]; out != "up\none then two, line 4\n" {
			t.Errorf("the program has printed %q", out)
		}
	})
}
