package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"trainyard/internal/job"
)

func TestAStateIsWrittenOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	tries := 0
	err := WriteState(t.Context(), dir, State{Status: Status{State: job.RunEnded}}, func(err error) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error = %v", err)
		}

		tries++
		if tries == 1 {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Error(err)
			}
		}
	})

	if err != nil || tries != 1 {
		t.Errorf("after %d failures: %v", tries, err)
	}

	var st State
	if ok, err := ReadJSON(filepath.Join(dir, StateFile), &st); !ok || err != nil || st.State != job.RunEnded {
		t.Errorf("state = %+v, %v, %v", st, ok, err)
	}
}
