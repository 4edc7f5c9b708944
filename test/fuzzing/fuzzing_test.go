package fuzzing

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// recorder is a test whose failures are looked at.
type recorder struct {
	testing.TB
	failures []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// spend keeps a processor busy for some time of this goroutine.
func spend(t testing.TB, d time.Duration) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	for begun := threadTime(t); threadTime(t)-begun < d; {
	}
}

func TestAnInputThatTakesTooLongFails(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}

	end := bounded(r, 20*time.Millisecond, time.Hour)
	spend(t, 40*time.Millisecond)
	end()

	if len(r.failures) != 1 || !strings.HasPrefix(r.failures[0], "the input took ") {
		t.Errorf("failures: %q", r.failures)
	}
}

// Waiting, and what other goroutines do, is not the input's.
func TestOnlyTheProcessorCounts(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}

	end := bounded(r, 50*time.Millisecond, time.Hour)
	done := make(chan struct{})
	go func() {
		defer close(done)

		spend(t, 100*time.Millisecond)
	}()

	<-done
	end()

	if len(r.failures) != 0 {
		t.Errorf("failures: %q", r.failures)
	}
}

func TestLong(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"a", "run: a\n---\n", strings.Repeat("x", longSize+1)} {
		if got := Long(text); len(got) < longSize/2 || !strings.HasPrefix(got, text) {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	}

	if got := Long([]byte(nil)); len(got) != 0 {
		t.Errorf("%d bytes of none", len(got))
	}
}
