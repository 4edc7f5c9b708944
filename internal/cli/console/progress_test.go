package console

import (
	"strings"
	"testing"
	"time"
)

// steps is a clock that goes on by a step with every look.
type steps struct {
	at   time.Time
	step time.Duration
}

func (s *steps) Now() time.Time {
	s.at = s.at.Add(s.step)
	return s.at
}

func TestProgressIsShownToPeopleNowAndThen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	show := func(terminal bool, output string) string {
		out.Reset()
		c := New(Env{
			Stdin: strings.NewReader(""), Stderr: &out, Clock: &steps{time.Unix(0, 0), 20 * time.Millisecond},
			IsTerminal: func(any) bool { return terminal },
		})

		c.Output = output
		bar := c.NewProgress()
		for i := range 7 {
			bar.Set("%d", i)
		}

		bar.Done()
		bar.Set("late")

		return out.String()
	}

	if got, want := show(true, Table), "\r\x1b[K0\r\x1b[K3\r\x1b[K6\r\x1b[K"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	if got := show(false, Table) + show(true, JSON); got != "" {
		t.Errorf("shown where nobody looks: %q", got)
	}
}
