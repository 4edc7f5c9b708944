package sql

import "testing"

// The documentation promises that a commit is on the disk when it returns (docs/explanation/durability.md).
func TestSQLiteSyncsEveryCommit(t *testing.T) {
	t.Parallel()
	s := open(t, engines()["sqlite"](t))

	for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal"} {
		var got string
		if err := s.write.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", pragma, got, err, want)
		}
	}
}
