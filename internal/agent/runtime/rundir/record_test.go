package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/contact"
	"trainyard/internal/job"
)

func TestAnEndIsRecordedOnceThatIsPossible(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	tries, written := 0, 0
	err := WriteFinalState(t.Context(), dir, State{Status: Status{State: job.RunEnded}}, func(err error) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error = %v", err)
		}

		tries++
		if tries == 1 {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Error(err)
			}
		}
	}, func() {
		written++ // others can read it before it is synced

		if ok, err := ReadState(dir, &State{}); !ok || err != nil {
			t.Errorf("when it is written: %v, %v", ok, err)
		}
	})

	if err != nil || tries != 1 || written != 1 {
		t.Errorf("after %d failures, written %d times: %v", tries, written, err)
	}

	var st State
	if ok, err := ReadState(dir, &st); !ok || err != nil || st.State != job.RunEnded {
		t.Errorf("state = %+v, %v, %v", st, ok, err)
	}
}

func TestAReasonIsCutToTheRoomOfAState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Reserve(dir); err != nil {
		t.Fatal(err)
	}

	st := State{Status: Status{State: job.RunEnded, ExitCode: 3, Reason: strings.Repeat("<é>", slotSize)}}
	if err := WriteState(dir, st); err != nil {
		t.Fatal(err)
	}

	var got State
	if ok, err := ReadState(dir, &got); !ok || err != nil {
		t.Fatal(ok, err)
	}

	if got.ExitCode != 3 || !strings.HasPrefix(st.Reason, got.Reason) || len(got.Reason) < 200 {
		t.Errorf("state = %d, %d bytes of a reason", got.ExitCode, len(got.Reason))
	}
}

// A supervisor of version 0.1.0 that outlives the upgrade of its agent is read and stopped in its own way.
func TestRunDirectoriesOfTheFormerVersionAreUnderstood(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	dir := filepath.Join(data, RunsDir, "j1.1.0")
	steps := []error{
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{"run":"j1.1","state":"running","pid":7}`), 0o600),
		os.WriteFile(filepath.Join(data, "contact-lease"), []byte(`{}`), 0o600),
		WriteContactLease(data, contact.Lease{Valid: 1000}),
		RequestStop(dir, job.StopTerm),
		RequestStop(dir, job.StopKill),
		RequestStop(dir, job.StopTerm), // does not take the kill back
		DropFormerLease(data, []string{dir}),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}

	var st State
	if ok, err := ReadState(dir, &st); !ok || err != nil || st.State != job.RunRunning || st.PID != 7 {
		t.Errorf("state = %+v, %v, %v", st, ok, err)
	}

	if got, err := os.ReadFile(filepath.Join(dir, "stop")); string(got) != "kill" || err != nil {
		t.Errorf("stop = %q, %v", got, err)
	}

	var lease contact.Lease
	if ok, err := ReadJSON(filepath.Join(data, "contact-lease"), &lease); !ok || err != nil || lease.Valid != 1000 {
		t.Errorf("lease = %+v, %v, %v", lease, ok, err)
	}

	// The agent records the end when that supervisor is gone; then nobody reads the former files.
	st.State = job.RunEnded
	if err := errors.Join(Renew(dir), WriteState(dir, st), DropFormerLease(data, []string{dir})); err != nil {
		t.Fatal(err)
	}

	if ok, err := ReadState(dir, &st); !ok || err != nil || st.State != job.RunEnded {
		t.Errorf("state = %+v, %v, %v", st, ok, err)
	}

	if _, err := os.Stat(filepath.Join(data, "contact-lease")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the former lease is still there: %v", err)
	}
}
