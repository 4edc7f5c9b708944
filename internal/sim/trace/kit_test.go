package trace_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/sim/trace/rows"
)

// read reads a text as a trace, all of it.
func read(t *testing.T, format, text string, o trace.Options) ([]*sim.Job, *trace.Reader, error) {
	t.Helper()
	r, err := trace.Read(strings.NewReader(text), "sample", format, o)
	if err != nil {
		return nil, nil, err
	}

	jobs, err := trace.Collect(r)

	return jobs, r, err
}

// mustRead reads a text that is sound.
func mustRead(t *testing.T, format, text string, o trace.Options) ([]*sim.Job, *trace.Reader) {
	t.Helper()
	jobs, r, err := read(t, format, text, o)
	if err != nil {
		t.Fatalf("read: %v", err)
	}

	return jobs, r
}

// write puts a text into a file.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}

	return path
}

// brief is what tests look at in a job.
type brief struct {
	name  string
	at    time.Duration
	owner string
	lasts time.Duration
	nodes int
	gpus  int
}

func briefs(jobs []*sim.Job) []brief {
	var list []brief
	for _, j := range jobs {
		r := j.Spec.Resources
		list = append(list, brief{j.Name, j.At, string(j.Owner), j.Duration, r.Nodes.Min, r.GPUs.Min})
	}

	return list
}

// badRow checks that an error names a row.
func badRow(t *testing.T, err error, line int, field, says string) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error that names a row", err)
	}

	if e.Kind != fault.Invalid || e.Code != rows.BadRow || e.Line != line || e.Field != field {
		t.Errorf(
			"got kind %s, code %s, line %d, field %q; want a bad row, line %d, field %q",
			e.Kind,
			e.Code,
			e.Line,
			e.Field,
			line,
			field,
		)
	}

	if !strings.Contains(e.Error(), says) || !strings.Contains(e.Error(), "sample") {
		t.Errorf("got %q, want it to name the file and say %q", e.Error(), says)
	}
}

// data returns a file of the shared data, or skips the test where it is not there.
func data(t *testing.T, name ...string) string {
	t.Helper()
	root := os.Getenv("TRAINYARD_DATA")
	if root == "" {
		root = "../../../../shared/data"
	}

	path := filepath.Join(append([]string{root}, name...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the shared data are not there: %v", err)
	}

	return path
}

// each calls fn for every job of a workload.
func each(t *testing.T, jobs sim.Jobs, fn func(*sim.Job)) {
	t.Helper()

	for {
		j, err := jobs.Next()
		if errors.Is(err, io.EOF) {
			return
		}

		if err != nil {
			t.Fatal(err)
		}

		fn(j)
	}
}
