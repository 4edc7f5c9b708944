package forecaster

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/clock"
	sqlstore "trainyard/internal/store/sql"
)

func TestLearnTmp(t *testing.T) {
	ctx := t.Context()
	st, err := sqlstore.Open(ctx, filepath.Join(t.TempDir(), "y.db"), sqlstore.Options{Clock: clock.Wall{}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Acquire(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	s := newSchool(st, clock.Wall{}, slog.New(slog.NewTextHandler(os.Stdout, nil)))
	past := pastJobs(2200, time.Now())
	c0 := cpu()
	if err := s.learn(ctx, past[:1000]); err != nil {
		t.Fatal(err)
	}
	t.Logf("first 1000: %s", cpu()-c0)
	c0 = cpu()
	if err := s.learn(ctx, past[1000:2000]); err != nil {
		t.Fatal(err)
	}
	t.Logf("next 1000: %s", cpu()-c0)
	for i := 2000; i < 2200; i += 10 {
		c0 = cpu()
		if err := s.learn(ctx, past[i:i+10]); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			t.Logf("10: %s", cpu()-c0)
		}
	}
	c0 = cpu()
	if err := s.train(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("train: %s", cpu()-c0)
}
