package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/cloud/reconcile"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/yardmaster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a provider whose answers are set.
type fake struct {
	mu       sync.Mutex
	calls    []string
	machines []fleet.Instance
	hang     bool          // calls end with their context alone
	slow     time.Duration // before a create is answered
	err      error         // of the next create
	unknown  bool          // machines that shall end are
}

func (*fake) Name() string { return "p" }

func (f *fake) enter(ctx context.Context, call string) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	hang := f.hang
	f.mu.Unlock()

	if hang {
		<-ctx.Done()
		return ctx.Err()
	}

	return nil
}

func (f *fake) Create(ctx context.Context, r cloud.Request) (cloud.Instance, error) {
	if err := f.enter(ctx, fmt.Sprintf("create %s until %s", r.Lease, r.Until.Format("15:04"))); err != nil {
		return cloud.Instance{}, err
	}

	time.Sleep(f.slow)
	f.mu.Lock()
	defer f.mu.Unlock()

	if err := f.err; err != nil {
		f.err = nil
		return cloud.Instance{}, err
	}

	m := fleet.Instance{ID: "i-" + string(r.Lease), Lease: r.Lease, State: cloud.Up, Billed: -1}
	f.machines = append(f.machines, m)

	return m, nil
}

func (f *fake) Terminate(ctx context.Context, _, instance string) error {
	if err := f.enter(ctx, "terminate "+instance); err != nil {
		return err
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	if f.unknown {
		return fault.New(fault.NotFound, "no_such_machine", "what is %s", instance)
	}

	f.machines = slices.DeleteFunc(f.machines, func(m fleet.Instance) bool { return m.ID == instance })

	return nil
}

func (f *fake) List(ctx context.Context) ([]cloud.Instance, error) {
	if err := f.enter(ctx, "list"); err != nil {
		return nil, err
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.Clone(f.machines), nil
}

// took returns the calls so far other than lists.
func (f *fake) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c string) bool { return c == "list" })
}

// yard takes what it is told, slowly if it is told so.
type yard struct {
	mu   sync.Mutex
	told []string
	slow time.Duration
	err  error

	calls, failed int
}

// Called makes a yard the watcher of its calls.
func (y *yard) Called(_, _ string, _ time.Duration, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()

	y.calls++
	if err != nil {
		y.failed++
	}
}

func (y *yard) watched() (calls, failed int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.calls, y.failed
}

func (y *yard) tell(_ context.Context, m yardmaster.Message) error {
	time.Sleep(y.slow)
	y.mu.Lock()
	defer y.mu.Unlock()

	if _, list := m.(yardmaster.InstancesListed); !list {
		y.told = append(y.told, fmt.Sprintf("%T", m))
	}

	return y.err
}

func (y *yard) heard() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Clone(y.told)
}

// begin starts a runner in a bubble, and returns it with what ends it.
func begin(t *testing.T, f *fake, y *yard) (r *reconcile.Runner, end func()) {
	t.Helper()
	r = &reconcile.Runner{
		Providers: []cloud.Provider{
			f,
		},
		Timing:   reconcile.DefaultTiming(),
		Timeouts: reconcile.DefaultTimeouts(),
		Deliver:  y.tell,
		Watch:    y,
		Clock:    clock.Wall{},
		Log:      slog.New(slog.DiscardHandler),
		Prepare: func(_ context.Context, l *fleet.Lease) (cloud.Request, error) {
			if l.Owner == "nobody" {
				return cloud.Request{}, errors.New("no token")
			}

			return cloud.Request{Lease: l.ID, Offer: l.Offer, Until: l.Ends}, nil
		},
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)

		r.Run(ctx)
	}()

	return r, func() {
		cancel()
		<-done
	}
}

func asked() fleet.Lease {
	l := lease("l1", fleet.LeaseRequested, "")
	l.Ends = start.Add(16 * time.Minute)
	return l
}

func TestRunnerProvisionsAndGivesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, y := &fake{}, &yard{}
		r, end := begin(t, f, y)
		defer end()

		r.Take([]fleet.Lease{asked()})
		time.Sleep(time.Second)
		r.Take([]fleet.Lease{lease("l1", fleet.LeaseBooting, "i-l1")})
		time.Sleep(time.Minute)
		r.Take([]fleet.Lease{lease("l1", fleet.LeaseReleasing, "i-l1")})
		time.Sleep(time.Second)
		r.Take([]fleet.Lease{lease("l1", fleet.LeaseEnded, "i-l1")})
		time.Sleep(time.Hour)

		if got, want := f.took(), []string{"create l1 until 08:16", "terminate i-l1"}; !slices.Equal(got, want) {
			t.Errorf("the provider was asked to %v, want %v", got, want)
		}

		if got, want := y.heard(), []string{"yardmaster.LeaseGranted", "yardmaster.ReleaseAccepted"}; !slices.Equal(got, want) {
			t.Errorf("the yard was told %v, want %v", got, want)
		}
	})
}

func TestRunnerTakesAMachineThatIsNotKnownForGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, y := &fake{unknown: true}, &yard{}
		r, end := begin(t, f, y)
		r.Take([]fleet.Lease{lease("l1", fleet.LeaseReleasing, "i-l1")})
		time.Sleep(6 * time.Second)
		end()

		if got, want := y.heard(), []string{"yardmaster.ReleaseAccepted", "yardmaster.ReleaseAccepted"}; !slices.Equal(got, want) {
			t.Errorf("the yard was told %v, want %v", got, want)
		}

		if calls, failed := y.watched(); calls != 3 || failed != 0 {
			t.Errorf("%d of %d calls are said to have failed, want none of a list and two orders to end", failed, calls)
		}
	})
}

// TestRunnerAsksOnceWhileTheYardIsSlow answers while the store takes its time: the lease
// that is known is still the old one, and other leases keep the runner awake.
func TestRunnerAsksOnceWhileTheYardIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, y := &fake{}, &yard{slow: 20 * time.Second}
		r, end := begin(t, f, y)
		defer end()

		r.Take([]fleet.Lease{asked()})

		for range 15 {
			time.Sleep(time.Second)
			r.Take([]fleet.Lease{lease("l2", fleet.LeaseActive, "i-l2")})
		}

		if got := f.took(); len(got) != 1 {
			t.Errorf("the provider was asked to %v, want once", got)
		}
	})
}

func TestRunnerDoesNotWaitForACallThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, y := &fake{}, &yard{}
		r, end := begin(t, f, y)
		defer end()

		time.Sleep(time.Second) // listed
		f.mu.Lock()
		f.hang = true
		f.mu.Unlock()
		r.Take([]fleet.Lease{asked()})
		time.Sleep(119 * time.Second)

		if got := y.heard(); slices.Contains(got, "yardmaster.OutcomeUnknown") {
			t.Errorf("told after 119 s: %v", got)
		}

		time.Sleep(2 * time.Second)

		if got := y.heard(); !slices.Contains(got, "yardmaster.OutcomeUnknown") {
			t.Errorf("told after 121 s: %v, want that nobody knows", got)
		}

		if _, failed := y.watched(); failed == 0 {
			t.Error("no call is said to have failed")
		}
	})
}

func TestRunnerTellsNothingWhenItIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, y := &fake{slow: time.Minute}, &yard{}
		r, end := begin(t, f, y)
		r.Take([]fleet.Lease{asked()})
		time.Sleep(time.Second)
		began := time.Now()
		end()

		if waited := time.Since(began); waited != 59*time.Second {
			t.Errorf("it ended after %s, want when the call had", waited)
		}

		if got := y.heard(); len(got) != 0 {
			t.Errorf("the yard was told %v: the next server asks for itself", got)
		}
	})
}

func TestRunnerAsksAgainWhenTheYardWasNotTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, y := &fake{
			err: fault.New(fault.OverLimit, fleet.RefusedCapacity, "none"),
		}, &yard{
			err: errors.New("the store is full"),
		}

		r, end := begin(t, f, y)
		defer end()

		r.Take([]fleet.Lease{asked()})
		time.Sleep(reconcile.DefaultTiming().MaxRetry + time.Second)

		if got := f.took(); len(got) != 2 {
			t.Errorf("the provider was asked to %v, want twice", got)
		}
	})
}

func TestRunnerDoesNotAskForWhatCannotBePrepared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, y := &fake{}, &yard{}
		r, end := begin(t, f, y)
		defer end()

		l := asked()
		l.Owner = "nobody"
		r.Take([]fleet.Lease{l})
		time.Sleep(time.Second)

		if got := f.took(); len(got) != 0 {
			t.Errorf("the provider was asked to %v", got)
		}

		if got := y.heard(); !slices.Equal(got, []string{"yardmaster.OutcomeUnknown"}) {
			t.Errorf("the yard was told %v", got)
		}
	})
}
