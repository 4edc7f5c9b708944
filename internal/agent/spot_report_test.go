package agent_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/clock"
)

// TestANoticeIsReported: the server learns how long the machine is still there.
func TestANoticeIsReported(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	path := filepath.Join(t.TempDir(), "notice.json")
	cfg := config(t, y, rt)
	cfg.SpotNotice, cfg.Clock = "file="+path, clock.Wall{}
	launch(t, cfg)
	y.await("a report without a notice", func() bool {
		n := len(y.reports)
		return n > 0 && y.reports[n-1].ReclaimLeft == nil
	})

	at := clock.Wall{}.Now().Add(time.Hour).Format(time.RFC3339)
	if err := os.WriteFile(path, []byte(`{"action": "terminate", "time": "`+at+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}

	y.await("a report of the notice", func() bool {
		left := y.reports[len(y.reports)-1].ReclaimLeft
		return left != nil && *left > 3000 && *left <= int64(time.Hour/time.Second)
	})

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	y.await("a report that it was withdrawn", func() bool { return y.reports[len(y.reports)-1].ReclaimLeft == nil })
}
