package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"trainyard/internal/id"
)

// execution is what one rank of one run wrote down about itself.
type execution struct {
	name  string
	run   id.Run
	rank  int
	start int // line of the record, -1 if it did not write one
	end   int // line of the record, -1 if it was killed
	how   string
	lines int
	code  int
}

// record is what all jobs of a yard wrote down, in the order it happened.
type record struct {
	executions map[string]*execution // by run and rank
	byName     map[string][]*execution
}

// readRecord reads the record and reports what can be told from it alone: that
// a rank of a run was carried out twice, or that two of the same job were at once.
func readRecord(t *testing.T, folder string) *record {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "record"))
	if err != nil {
		t.Fatal(err)
	}

	r := &record{executions: map[string]*execution{}, byName: map[string][]*execution{}}
	for n, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if err := r.take(n, strings.Fields(line)); err != nil {
			t.Errorf("line %d of the record, %q: %v", n+1, line, err)
		}
	}

	return r
}

// take reads one line: what name run rank [lines code].
func (r *record) take(n int, f []string) error {
	if len(f) < 4 {
		return fmt.Errorf("is cut short")
	}

	rank, err := strconv.Atoi(f[3])
	if err != nil {
		return err
	}

	k := rankOf(id.Run(f[2]), rank)
	e := r.executions[k]

	switch f[0] {
	case "start":
		if e != nil {
			return fmt.Errorf("the rank was started before, at line %d", e.start+1)
		}

		e = &execution{name: f[1], run: id.Run(f[2]), rank: rank, start: n, end: -1}
		r.executions[k] = e
		r.byName[e.name] = append(r.byName[e.name], e)

		return nil
	case "end", "term":
		if e == nil || e.end >= 0 || len(f) != 6 {
			return fmt.Errorf("ends what has not begun")
		}

		e.end, e.how = n, f[0]
		e.lines, err = strconv.Atoi(f[4])
		if err != nil {
			return err
		}

		e.code, err = strconv.Atoi(f[5])

		return err
	case "twice":
		return fmt.Errorf("another run of the same rank was there")
	}

	return fmt.Errorf("the program complains")
}

// over reports whether an execution was over for sure when another began.
func (e *execution) over(other *execution) bool { return e.end < 0 || e.end < other.start }
