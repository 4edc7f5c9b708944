package supervisor

import (
	"path/filepath"
	"testing"
)

func TestOnlyALogWithContentIsSynced(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		text string
		want int
	}{{"", 0}, {"a line\n", 1}} {
		f, err := openLogFile(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}

		syncs := 0
		f.sync = func() error {
			syncs++
			return f.Sync()
		}

		if test.text != "" {
			if _, err := f.Write([]byte(test.text)); err != nil {
				t.Fatal(err)
			}
		}

		if err := f.end(); err != nil || syncs != test.want {
			t.Errorf("a log of %q was synced %d times, want %d (%v)", test.text, syncs, test.want, err)
		}
	}
}
