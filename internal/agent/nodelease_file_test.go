package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/cloud"
)

// handClock is a machine's clock that the test turns: the time since boot goes by
// itself or by hand, the wall clock can be set.
type handClock struct {
	boot  string
	since time.Duration
	began time.Time // of the time that goes by itself; zero if it does not
	wall  time.Time
}

func (c *handClock) moment() (cloud.Moment, error) {
	gone := c.since
	if !c.began.IsZero() {
		gone += time.Since(c.began)
	}

	return cloud.Moment{Boot: c.boot, Since: gone, Wall: c.wall.Add(gone)}, nil
}

func newHold(tb rapid.TB, path string, c *handClock) *nodeLease {
	tb.Helper()
	h, err := openNodeLease(path, c.moment)
	if err != nil {
		tb.Fatal(err)
	}

	return h
}

// answer is an answer of the yard that comes at once.
func answer(tb testing.TB, h *nodeLease, left int64) {
	tb.Helper()

	if err := h.renewal()(&left); err != nil {
		tb.Fatal(err)
	}
}

func ignore(error) {}

func TestRenewalsKeepAMachineAndSilenceEndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &handClock{boot: "b1", began: time.Now(), wall: time.Now()}
		h := newHold(t, filepath.Join(t.TempDir(), cloud.DeadlineFile), c)
		answer(t, h, 3600)
		ended := make(chan time.Duration)
		go func() {
			if h.awaitExpiry(t.Context(), ignore) {
				ended <- time.Since(c.began)
			}
		}()

		for range 20 { // ten hours of renewals
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			answer(t, h, 3600)
		}

		if got := <-ended; got != 11*time.Hour {
			t.Errorf("ended after %s, want an hour after the last of ten hours of renewals", got)
		}
	})
}

func TestAShorterLeaseAndAnEndAreHeardAtOnce(t *testing.T) {
	t.Parallel()

	for name, tell := range map[string]struct {
		tell func(tb testing.TB, h *nodeLease)
		want time.Duration
	}{
		"shorter": {func(tb testing.TB, h *nodeLease) {
			tb.Helper()
			answer(tb, h, 60)
		}, 2 * time.Minute},
		"nothing": {func(tb testing.TB, h *nodeLease) {
			tb.Helper()
			answer(tb, h, 0)
		}, time.Minute},
		"negative": {func(tb testing.TB, h *nodeLease) {
			tb.Helper()
			answer(tb, h, -5)
		}, time.Minute},
		"end": {func(tb testing.TB, h *nodeLease) {
			tb.Helper()

			if err := h.expire(); err != nil {
				tb.Fatal(err)
			}
		}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &handClock{boot: "b1", began: time.Now()}
				h := newHold(t, filepath.Join(t.TempDir(), cloud.DeadlineFile), c)
				answer(t, h, 1<<62) // longer than any clock counts
				ended := make(chan time.Duration)
				go func() {
					if h.awaitExpiry(t.Context(), ignore) {
						ended <- time.Since(c.began)
					}
				}()

				time.Sleep(time.Minute)
				synctest.Wait()
				tell.tell(t, h)

				if got := <-ended; got != tell.want {
					t.Errorf("ended after %s, want %s", got, tell.want)
				}
			})
		})
	}
}

func TestAMachineThatWasNotProvisionedNeverEndsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &handClock{boot: "b1", began: time.Now()}
		path := filepath.Join(t.TempDir(), cloud.DeadlineFile)
		h := newHold(t, path, c)
		if err := h.renewal()(nil); err != nil {
			t.Fatal(err)
		}

		answer(t, h, 3600)

		if err := h.clear(); err != nil { // it has joined anew and was not provisioned
			t.Fatal(err)
		}

		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the lease of an earlier life is still there: %v", err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
		defer cancel()

		if h.awaitExpiry(ctx, ignore) || h.expired() {
			t.Error("its lease is over")
		}
	})
}

func TestAnAnswerThatSaysNothingDoesNotReleaseAProvisionedMachine(t *testing.T) {
	t.Parallel()
	c := &handClock{boot: "b1"}
	h := newHold(t, filepath.Join(t.TempDir(), cloud.DeadlineFile), c)
	answer(t, h, 60)

	if err := h.renewal()(nil); err != nil {
		t.Fatal(err)
	}

	c.since = time.Minute

	if !h.expired() {
		t.Error("the lease goes on")
	}
}

func TestTheTimeOfALeaseCountsFromTheQuestion(t *testing.T) {
	t.Parallel()
	c := &handClock{boot: "b1"}
	h := newHold(t, filepath.Join(t.TempDir(), cloud.DeadlineFile), c)
	renew := h.renewal()
	c.since += 9 * time.Second // the answer took its time

	sixty := int64(60)
	if err := renew(&sixty); err != nil {
		t.Fatal(err)
	}

	if left, provisioned, err := h.remaining(); left != 51*time.Second || !provisioned || err != nil {
		t.Errorf("%s left, provisioned %v, error %v; want 51 seconds", left, provisioned, err)
	}
}

func TestADamagedLeaseFileStopsNobody(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), cloud.DeadlineFile)
	if err := os.WriteFile(path, nil, 0o600); err != nil { // as a power cut leaves it
		t.Fatal(err)
	}

	c := &handClock{boot: "b1"}
	h, err := openNodeLease(path, c.moment)
	if err == nil {
		t.Error("nobody hears of it")
	}

	if h.expired() {
		t.Error("the lease is over")
	}

	answer(t, h, 60)

	if left, provisioned, err := newHold(t, path, c).remaining(); left != time.Minute || !provisioned || err != nil {
		t.Errorf("%s left, provisioned %v, error %v; want what the newest answer said", left, provisioned, err)
	}
}

// TestAMachineEndsWhenTheYardSaidLast plays renewals, restarts of the agent and a
// wall clock that is set, in any order: the lease ends when the newest answer said,
// or up to a second earlier, because a restarted agent knows whole seconds.
func TestAMachineEndsWhenTheYardSaidLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, cloud.DeadlineFile)
		if err := removeIfThere(path); err != nil {
			t.Fatal(err)
		}

		c := &handClock{boot: "b1", since: time.Hour, wall: time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)}
		h := newHold(t, path, c)
		provisioned, until := false, time.Duration(0)
		check := func() {
			now, _ := c.moment()
			over := h.expired()
			if over && (!provisioned || now.Since < until-time.Second) {
				t.Fatalf("over at %s, before %s", now.Since, until)
			}

			if !over && provisioned && now.Since >= until {
				t.Fatalf("not over at %s, after %s", now.Since, until)
			}
		}

		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				c.since += time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "so long"))
			},
			"the yard answers": func(t *rapid.T) {
				left := rapid.Int64Range(0, 7200).Draw(t, "left")
				renew := h.renewal()
				until, provisioned = c.since+time.Duration(left)*time.Second, true
				c.since += time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "latency"))

				if err := renew(&left); err != nil {
					t.Fatal(err)
				}
			},
			"the agent starts anew": func(t *rapid.T) { h = newHold(t, path, c) },
			"the clock is set": func(t *rapid.T) {
				c.wall = c.wall.Add(time.Duration(rapid.Int64Range(-48, 48).Draw(t, "hours")) * time.Hour)
			},
			"": func(*rapid.T) { check() },
		})
	})
}
