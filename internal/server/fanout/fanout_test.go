package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	hub      = Hub[string, int]
	feed     = Feed[string, int]
	follower = Follower[string, int]
)

// idle publishes nothing of its own.
func idle(ctx context.Context, _ *feed) error {
	<-ctx.Done()
	return nil
}

// joined adds a follower at a place.
func joined(tb testing.TB, h *hub, at int) *follower {
	tb.Helper()
	m, ok := h.Join(tb.Context(), "feed", fmt.Sprint(at), at, idle)
	if !ok {
		tb.Fatalf("cannot join at %d", at)
	}

	return m
}

// publish adds an item of a line up to a place.
func (f *Feed[K, P]) publish(size int, at P) {
	f.Publish(Item[P]{Data: make([]byte, size), Lines: 1, After: at, Joint: fmt.Sprint(at)})
}

// places returns the places after the items that a follower gets.
func places(tb testing.TB, m *follower) []int {
	tb.Helper()
	items, _, err := m.Next()
	if err != nil {
		tb.Fatal(err)
	}

	var out []int
	for _, i := range items {
		out = append(out, i.After)
	}

	return out
}

func TestFollowersShareTheSameBytes(t *testing.T) {
	t.Parallel()
	h := NewHub[string, int](1<<20, 1<<20)
	one, two := joined(t, h, 0), joined(t, h, 0)
	defer one.Leave()
	defer two.Leave()

	_, changed, err := one.Next()
	if err != nil {
		t.Fatal(err)
	}

	one.feed.publish(100, 1)
	<-changed

	first, _, _ := one.Next()
	second, _, _ := two.Next()
	if len(first) != 1 || len(second) != 1 || unsafe.SliceData(first[0].Data) != unsafe.SliceData(second[0].Data) {
		t.Errorf("they got %v and %v", first, second)
	}
}

func TestAFeedIsJoinedWhereItHasAJoint(t *testing.T) {
	t.Parallel()
	h := NewHub[string, int](1<<20, 1<<20)
	slow := joined(t, h, 0) // keeps all in memory
	defer slow.Leave()

	if _, ok := h.Join(t.Context(), "feed", "7", 7, idle); ok {
		t.Error("joined where the feed has not been")
	}

	f := slow.feed
	f.publish(10, 1)
	f.Publish(Item[int]{Data: make([]byte, 10), Lines: 1, After: 2})  // in the middle of something
	f.Publish(Item[int]{Data: make([]byte, 10), After: 1, Joint: ""}) // nobody can name it
	f.publish(10, 3)
	f.Publish(Item[int]{Data: make([]byte, 10), After: 3, Joint: "3"}) // without going on

	for at, want := range map[int][]int{0: {1, 2, 1, 3, 3}, 1: {2, 1, 3, 3}, 3: {3}} {
		m := joined(t, h, at)
		if got := places(t, m); !slices.Equal(got, want) {
			t.Errorf("after %d comes %v, want %v", at, got, want)
		}

		m.Leave()
	}

	for _, joint := range []string{"2", ""} {
		if _, ok := h.Join(t.Context(), "feed", joint, 2, idle); ok {
			t.Errorf("joined at %q", joint)
		}
	}

	if at, _, ok := h.Newest("feed"); !ok || at != 3 {
		t.Errorf("the newest joint is %d, %v", at, ok)
	}

	if _, _, ok := h.Newest("other"); ok {
		t.Error("a feed that nobody follows has a joint")
	}
}

// 200 followers of a job that printed much were later and later, without bound.
func TestAFollowerThatTakesNothingKeepsNoMemory(t *testing.T) {
	t.Parallel()
	const room, size = 1 << 20, 10 << 10
	h := NewHub[string, int](room, 64<<20)
	fast, stuck := joined(t, h, 0), joined(t, h, 0)
	defer fast.Leave()
	defer stuck.Leave()

	for n := range 1000 {
		fast.feed.publish(size, n+1)

		if got := places(t, fast); !slices.Equal(got, []int{n + 1}) {
			t.Fatalf("the other one got %v after %d", got, n)
		}
		if kept := h.Stats().Bytes; kept > room {
			t.Fatalf("%d bytes are kept", kept)
		}
	}

	if _, _, err := stuck.Next(); !errors.Is(err, ErrBehind) {
		t.Fatalf("it got %v", err)
	}

	// Nothing is kept for one who is behind.
	fast.feed.publish(size, 1001)

	if kept := h.Stats().Bytes; kept != size {
		t.Errorf("%d bytes are kept for who has all", kept)
	}

	stuck.Sent(300)

	if lag := stuck.Lag(); lag != 701 {
		t.Errorf("it is %d lines behind", lag)
	}

	if stuck.Rejoin("300") || !stuck.Behind() {
		t.Error("it goes on with what is not in memory")
	}

	skipped, at, ok := stuck.Skip()
	if skipped != 701 || at != 1001 || !ok || h.Stats().Skipped != 701 {
		t.Errorf("%d lines up to %d are skipped (%v), the hub counts %d", skipped, at, ok, h.Stats().Skipped)
	}

	fast.feed.publish(size, 1002)

	if got := places(t, stuck); !slices.Equal(got, []int{1002}) {
		t.Errorf("then comes %v", got)
	}
}

func TestManyFeedsShareTheRoom(t *testing.T) {
	t.Parallel()
	h := NewHub[string, int](1<<20, 2<<20)
	var stuck []*follower

	for n := range 8 {
		m, ok := h.Join(t.Context(), fmt.Sprint("feed ", n), "0", 0, idle)
		if !ok {
			t.Fatal("cannot join")
		}

		defer m.Leave()

		stuck = append(stuck, m)
	}

	most := 0
	for n := range 100 {
		for _, m := range stuck {
			m.feed.publish(20<<10, n+1)
			most = max(most, h.Stats().Bytes)
		}
	}

	if most > 2<<20 || most < 1<<20 {
		t.Errorf("up to %d bytes were kept for all", most)
	}
}

func TestAnItemLargerThanTheRoomIsPassedOn(t *testing.T) {
	t.Parallel()
	h := NewHub[string, int](1<<20, 1<<20)
	m := joined(t, h, 0)
	defer m.Leave()

	m.feed.publish(4<<20, 1)

	if got := places(t, m); !slices.Equal(got, []int{1}) {
		t.Errorf("got %v", got)
	}
}

func TestTheLastOneEndsTheFeed(t *testing.T) {
	t.Parallel()
	h := NewHub[string, int](1<<20, 1<<20)
	ended := make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	run := func(ctx context.Context, _ *feed) error {
		defer close(ended)

		<-ctx.Done()

		return ctx.Err()
	}

	one, _ := h.Join(ctx, "feed", "0", 0, run)
	two, _ := h.Join(t.Context(), "feed", "0", 0, run)
	leave()
	one.Leave()

	select {
	case <-ended:
		t.Fatal("it ended with the first follower")
	default:
	}

	two.feed.publish(1, 1)

	if got := places(t, two); !slices.Equal(got, []int{1}) {
		t.Errorf("got %v", got)
	}

	two.Leave()
	<-ended

	if _, _, ok := h.Newest("feed"); ok || h.Stats() != (Stats{}) {
		t.Errorf("it is still there: %+v", h.Stats())
	}
}

func TestAFeedThatEndsSaysSo(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")

	for name, why := range map[string]error{"with all that was to come": nil, "with an error": broken} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := NewHub[string, int](1<<20, 1<<20)
			end := make(chan struct{})
			m, _ := h.Join(t.Context(), "feed", "0", 0, func(_ context.Context, f *feed) error {
				<-end
				f.publish(1, 1)

				return why
			})
			defer m.Leave()

			behind, _ := h.Join(t.Context(), "feed", "0", 0, nil)
			defer behind.Leave()

			behind.behind = true

			close(end)
			<-m.feed.done

			if got := places(t, m); !slices.Equal(got, []int{1}) {
				t.Errorf("the last item: got %v", got)
			}

			want := why
			if want == nil {
				want = io.EOF
			}

			if _, _, err := m.Next(); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}

			// Nothing is skipped of what does not grow any more.
			if _, _, ok := behind.Skip(); ok || behind.Rejoin("0") || !behind.Over() {
				t.Error("one who is behind goes on with it")
			}

			// The next one begins another feed.
			next := joined(t, h, 5)
			next.Leave()
		})
	}
}

func TestNobodySkipsTheEnd(t *testing.T) {
	t.Parallel()
	h := NewHub[string, int](100, 100)
	fast, slow := joined(t, h, 0), joined(t, h, 0)
	defer fast.Leave()
	defer slow.Leave()

	slow.feed.publish(10, 1)
	slow.feed.End(Item[int]{Data: []byte("end"), After: 1})

	// What publishes the feed has not returned yet.
	if got := places(t, fast); len(got) != 2 {
		t.Errorf("places %v, want two", got)
	}

	if lines, at, ok := slow.Skip(); ok {
		t.Errorf("%d lines are skipped, to %d, which is the end", lines, at)
	}

	if _, _, err := fast.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}

	next := joined(t, h, 1) // begins another feed
	defer next.Leave()

	if next.feed == slow.feed {
		t.Error("a feed that has ended was joined")
	}
}

func TestABurstWaitsForThoseWhoTakeIt(t *testing.T) {
	t.Parallel()
	const room = 1 << 20
	h := NewHub[string, int](room, room)
	m := joined(t, h, 0)
	defer m.Leave()

	read := make(chan int, 1)
	go func() {
		total := 0
		defer func() { read <- total }()

		for total < 400 {
			items, changed, err := m.Next()
			if err != nil {
				return
			}

			total += len(items)
			if len(items) == 0 {
				<-changed
			}
		}
	}()

	for n := range 400 {
		m.feed.publish(100<<10, n+1)
		m.feed.Pace(t.Context(), time.Hour)
	}

	if got := <-read; got != 400 {
		t.Errorf("it got %d of 400 items before it fell behind", got)
	}

	// Who takes nothing is waited for no longer than said, and not at all when behind.
	for n := range 20 {
		m.feed.publish(100<<10, 401+n)
	}

	m.feed.Pace(t.Context(), time.Millisecond)
	m.behind = true
	m.feed.Pace(t.Context(), time.Hour)
}

// Whatever happens, what a follower gets, reads elsewhere and skips is everything once.
func TestNothingIsLostUnsaid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := NewHub[string, int](least, 4*least)
		published := 0
		type reader struct {
			*follower
			at, skipped int
		}

		begin, ok := h.Join(context.Background(), "feed", "0", 0, idle)
		if !ok {
			t.Fatal("cannot begin")
		}

		readers := []*reader{{follower: begin}}
		defer func() {
			for _, r := range readers {
				r.Leave()
			}
		}()

		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			r := rapid.SampledFrom(readers).Draw(t, "reader")

			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				for range rapid.IntRange(1, 8).Draw(t, "items") {
					published++
					begin.feed.publish(rapid.IntRange(1, least/2).Draw(t, "size"), published)
				}
			case 1:
				items, _, err := r.Next()
				if errors.Is(err, ErrBehind) {
					r.behindStep(t, published, &r.at, &r.skipped)
					break
				}

				for _, i := range items {
					if i.After != r.at+1 {
						t.Fatalf("after %d came %d", r.at, i.After)
					}

					r.at = i.After
				}

				if err != nil || r.at != published {
					t.Fatalf("it has %d of %d: %v", r.at, published, err)
				}
			case 2:
				if m, ok := h.Join(context.Background(), "feed", fmt.Sprint(r.at), r.at, idle); ok {
					readers = append(readers, &reader{follower: m, at: r.at})
				}
			case 3:
				if got := int(r.Lag()); got != published-r.at {
					t.Fatalf("it is %d behind, and %d of %d are there", got, r.at, published)
				}
			}
		}
	})
}

// behindStep lets a follower who is behind read on elsewhere, or skip.
func (m *Follower[K, P]) behindStep(t *rapid.T, published int, at, skipped *int) {
	if rapid.Bool().Draw(t, "skip") {
		lines, _, ok := m.Skip()
		if !ok || *at+int(lines) != published {
			t.Fatalf("%d and %d skipped lines are not %d", *at, lines, published)
		}

		*at, *skipped = published, *skipped+int(lines)

		return
	}

	n := rapid.IntRange(0, published-*at).Draw(t, "lines read elsewhere")
	*at += n
	m.Sent(n)
	m.Rejoin(fmt.Sprint(*at))
}
