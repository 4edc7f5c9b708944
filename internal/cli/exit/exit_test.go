package exit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

func TestEveryKindOfFailureHasADocumentedCode(t *testing.T) {
	t.Parallel()
	documented := map[int]bool{}
	for _, e := range exitTable {
		documented[e.code] = true
	}

	for _, kind := range fault.Kinds() {
		code, ok := kindExit[kind]
		if !ok || !documented[code] || code == OK {
			t.Errorf("%s has exit code %d (mapped %v, documented %v)", kind, code, ok, documented[code])
		}

		if got := Code(fmt.Errorf("while testing: %w", fault.New(kind, "x", "y"))); got != code {
			t.Errorf("a wrapped error of kind %s gives %d, want %d", kind, got, code)
		}
	}

	for err, want := range map[error]int{
		nil: OK, errors.New("plain"): Error, context.Canceled: Interrupted, &usageError{}: Usage,
		With(7): 7, error(fault.List{fault.New(fault.Denied, "a", "b")}[0]): Denied,
	} {
		if got := Code(err); got != want {
			t.Errorf("Code(%v) = %d, want %d", err, got, want)
		}
	}
}

func TestEveryStateOfAJobHasAnCode(t *testing.T) {
	t.Parallel()
	codes := map[job.State]int{
		job.Pending: NotFinished, job.Starting: NotFinished, job.Running: NotFinished, job.Recovering: NotFinished,
		job.Pausing: NotFinished, job.Paused: NotFinished, job.Cancelling: NotFinished,
		job.Succeeded: OK, job.Cancelled: Cancelled, job.Failed: JobFailed,
	}

	for _, s := range job.States() {
		want, known := codes[s]
		if !known {
			t.Errorf("what exit code has a job that is %s?", s)
		}

		if got := OfJob(api.Job{State: s}); got != want {
			t.Errorf("%s: %d, want %d", s, got, want)
		}
	}
}
