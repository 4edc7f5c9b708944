package leadership_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/server/leadership"
	"trainyard/internal/store"
)

// fakeStore grants every lead, and renewals as it is set to.
type fakeStore struct {
	store.Store
	lease time.Duration

	mu       sync.Mutex
	err      error         // of a renewal
	during   func()        // is called while a renewal is under way
	renewals chan struct{} // gets one for each renewal
}

func (s *fakeStore) Lead(context.Context, store.Candidate) (time.Duration, error) {
	return s.lease, nil
}

func (s *fakeStore) Renew(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.during != nil {
		s.during()
	}

	select {
	case s.renewals <- struct{}{}:
	default:
	}

	return s.err
}

func (s *fakeStore) set(err error, during func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.err, s.during = err, during
}

// handClock moves by hand. It can move its monotonic reading or not.
type handClock struct {
	ahead   atomic.Int64
	stepped atomic.Int64 // of the wall clock alone
}

var noon = time.Now()

func (c *handClock) Now() time.Time {
	now := noon.Add(time.Duration(c.ahead.Load()))
	if step := c.stepped.Load(); step != 0 {
		return now.Round(0).Add(time.Duration(step)) // a time without a monotonic reading is compared as it is
	}

	return now
}

const lease = 40 * time.Millisecond // is polled often; how long it lasts is up to the clock

func begin(t *testing.T, s *fakeStore) (*leadership.Term, *handClock) {
	t.Helper()
	hand := &handClock{}
	s.renewals = make(chan struct{}, 1)

	term, err := leadership.Begin(t.Context(), leadership.Config{
		Store: s, Candidate: store.Candidate{Lease: lease}, Clock: hand, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}

	return term, hand
}

func TestATermIsHeldUntilShortlyBeforeItsLeaseExpires(t *testing.T) {
	t.Parallel()
	term, hand := begin(t, &fakeStore{lease: lease})

	if err := term.Held(); err != nil {
		t.Errorf("at once: %v", err)
	}

	hand.ahead.Store(int64(lease * 8 / 10))

	if err := term.Held(); err != nil {
		t.Errorf("before it expires: %v", err)
	}

	hand.ahead.Store(int64(lease * 95 / 100)) // by this clock; another may be faster

	if err := term.Held(); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("shortly before it expires: %v, want that it is not certain", err)
	}
}

// The lease counts from before the question: the store may have granted it long before the answer came.
func TestALeaseCountsFromBeforeTheQuestion(t *testing.T) {
	t.Parallel()
	s := &fakeStore{lease: lease}
	term, hand := begin(t, s)
	s.set(nil, func() { hand.ahead.Store(int64(2 * lease)) }) // the answer takes long
	keep(t, term)
	<-s.renewals
	<-s.renewals

	// Every renewal since was asked for at 2 leases, so it is held there and not much longer.
	hand.ahead.Store(int64(2*lease + lease*95/100))
	s.set(errors.New("gone"), nil)

	if err := term.Held(); err == nil {
		t.Error("it is held for longer than a lease after the last question")
	}
}

// keep renews the lease until the test ends.
func keep(t *testing.T, term *leadership.Term) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)

		done <- term.Keep(ctx)
	}()

	t.Cleanup(func() {
		cancel()
		<-ended
	})

	return done
}

func TestATermThatAnotherHasFollowedIsOver(t *testing.T) {
	t.Parallel()
	s := &fakeStore{lease: lease}
	term, _ := begin(t, s)
	s.set(store.ErrNotLeader, nil)

	if err := <-keep(t, term); !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("Keep ended with %v", err)
	}

	if err := term.Held(); !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("it is held: %v", err)
	}
}

func TestATermGoesOnWhenTheStoreComesBack(t *testing.T) {
	t.Parallel()
	s := &fakeStore{lease: lease}
	term, hand := begin(t, s)
	s.set(fault.New(fault.Unavailable, "store_unavailable", "the network is gone"), nil)
	keep(t, term)
	hand.ahead.Store(int64(3 * lease))
	<-s.renewals

	err := term.Held()
	if fault.KindOf(err) != fault.Unavailable || errors.Is(err, store.ErrNotLeader) {
		t.Errorf("without the store: %v, want that it is not certain", err)
	}

	s.set(nil, nil)

	for range 1000 {
		if err = term.Held(); err == nil {
			break
		}

		<-s.renewals
	}

	if err != nil {
		t.Errorf("with the store again: %v", err)
	}
}

// A machine that was suspended may not know it by its monotonic clock.
func TestTheWallClockCountsToo(t *testing.T) {
	t.Parallel()
	term, hand := begin(t, &fakeStore{lease: lease})
	hand.stepped.Store(int64(time.Hour))

	if err := term.Held(); err == nil {
		t.Error("it is held an hour later")
	}
}

func TestATermWithoutALeaseIsHeldAsLongAsTheProcessLives(t *testing.T) {
	t.Parallel()
	term, hand := begin(t, &fakeStore{})
	hand.ahead.Store(int64(time.Hour))

	if err := term.Held(); err != nil {
		t.Error(err)
	}
}
