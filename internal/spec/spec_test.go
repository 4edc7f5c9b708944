package spec

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/test/golden"
)

// now is the time in all tests.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// badCase is one file of testdata/bad.txt: its text, and behind a line "==>" what is said about it.
type badCase struct{ name, text, want string }

func badCases(t testing.TB) (head string, cases []badCase) {
	t.Helper()
	text, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		t.Fatal(err)
	}

	var body strings.Builder
	flush := func() {
		if len(cases) == 0 {
			head = body.String()
		} else {
			c := &cases[len(cases)-1]
			c.text, c.want, _ = strings.Cut("\n"+body.String(), "\n==>\n")
			c.text = strings.TrimPrefix(c.text, "\n")
			if c.text != "" && !strings.HasSuffix(c.text, "\n") {
				c.text += "\n"
			}
		}

		body.Reset()
	}

	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(name, " --\n") {
			flush()
			cases = append(cases, badCase{name: strings.TrimSuffix(name, " --\n")})
			continue
		}

		body.WriteString(line)
	}

	flush()

	return head, cases
}

func TestBadFilesAreToldExactly(t *testing.T) {
	t.Parallel()
	head, cases := badCases(t)
	if len(cases) < 60 {
		t.Errorf("there are %d bad files, and should be 60 at least", len(cases))
	}

	var renewed strings.Builder
	renewed.WriteString(head)

	for _, c := range cases {
		file, err := Parse([]byte(c.text), Options{Now: now})
		if err == nil || file != nil {
			t.Errorf("%s: is no bad file: %v, %v", c.name, file, err)
			continue
		}

		checkErrors(t, err)

		if got := err.Error() + "\n"; got != c.want && !golden.Update() {
			t.Errorf("%s: (-want +got)\n%s", c.name, cmp.Diff(c.want, got))
		}

		fmt.Fprintf(&renewed, "-- %s --\n%s==>\n%s\n", c.name, c.text, err)
	}

	if golden.Update() {
		golden.Write(t, "testdata/bad.txt", renewed.String())
	}
}

// checkErrors checks what holds for every error of Parse.
func checkErrors(t *testing.T, err error) {
	t.Helper()
	var list fault.List
	if !errors.As(err, &list) || len(list) == 0 {
		t.Fatalf("error is a %T, want a fault.List with mistakes", err)
	}

	for i, e := range list {
		if e.Kind != fault.Invalid || e.Code == "" || e.Message == "" || e.Remedy == "" || e.Line < 0 ||
			(e.Line > 0) != (e.Column > 0) {
			t.Errorf("incomplete error %+v", e)
		}

		if strings.ContainsAny(e.Error(), "\n\x00") || len(e.Error()) > 100_000 {
			t.Errorf("error is not one short line: %q", e.Error())
		}

		if i > 0 && e.Line < list[i-1].Line && e.Code != "too_many_errors" {
			t.Errorf("error of line %d comes after one of line %d", e.Line, list[i-1].Line)
		}
	}
}

// codes lists the codes of an error.
func codes(err error) []string {
	var list fault.List
	var codes []string
	if errors.As(err, &list) {
		for _, e := range list {
			codes = append(codes, e.Code)
		}
	}

	return codes
}

// basic is what a job with only a run has.
func basic(change func(*job.Spec)) job.Spec {
	s := job.Spec{Run: "a", Place: job.PlaceAny, Objective: job.ObjectiveBalanced, Grace: job.Duration(30 * time.Second),
		Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000}}
	if change != nil {
		change(&s)
	}

	return s
}
