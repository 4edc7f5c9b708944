package content

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/store"
)

// possessions is a store that knows what users possess, and counts how often it is asked.
type possessions struct {
	store.Store
	bytes map[id.User]int64
	asked int
	err   error
}

func (p *possessions) PossessedBytes(_ context.Context, who id.User) (int64, error) {
	p.asked++
	return p.bytes[who], p.err
}

// handClock stands still until it is moved.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time { return c.now }

func newClock() *handClock { return &handClock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// begin begins an upload of so many bytes whose size is not announced.
func begin(t *testing.T, q *Quota, who id.User, n int) *Upload {
	t.Helper()
	u, err := q.Upload(t.Context(), who, strings.NewReader(strings.Repeat("x", n)), -1)
	if err != nil {
		t.Fatal(err)
	}

	return u
}

// read reads all of an upload and returns how much came through.
func read(u *Upload) (int, error) {
	content, err := io.ReadAll(u)
	return len(content), err
}

func wantOver(t *testing.T, err error, text string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != CodeQuota || f.Kind != fault.OverLimit || !strings.Contains(f.Message, text) {
		t.Errorf("error = %v, want one with the code %s and %q", err, CodeQuota, text)
	}
}

func TestAnUploadWhoseSizeDoesNotFitIsRefusedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	q := NewQuota(1000, 0, &possessions{bytes: map[id.User]int64{"ada": 600}}, newClock())

	if _, err := q.Upload(t.Context(), "ada", nil, 400); err != nil {
		t.Errorf("what fits: %v", err)
	}

	_, err := q.Upload(t.Context(), "ada", nil, 401)
	wantOver(t, err, "the uploaded files of ada have 600B, and the limit is 1000B: no room for 401B more")

	if _, err := q.Upload(t.Context(), "bob", nil, 1000); err != nil {
		t.Errorf("another user: %v", err)
	}
}

func TestAUserWithoutRoomCannotBeginAnUpload(t *testing.T) {
	t.Parallel()
	q := NewQuota(1000, 0, &possessions{bytes: map[id.User]int64{"ada": 1000}}, newClock())

	_, err := q.Upload(t.Context(), "ada", nil, -1)
	wantOver(t, err, "the uploaded files of ada have 1000B")
}

func TestUploadsAtTheSameTimeShareTheRoom(t *testing.T) {
	t.Parallel()
	q := NewQuota(1000, 0, &possessions{}, newClock())
	first, second := begin(t, q, "ada", 700), begin(t, q, "ada", 301)

	if n, err := read(first); n != 700 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}

	n, err := read(second)
	if n != 0 {
		t.Errorf("%d bytes came through", n)
	}

	wantOver(t, err, "the uploaded files of ada have 700B")
	second.End(false)

	// Of the one that failed nothing counts.
	third := begin(t, q, "ada", 300)
	if n, err := read(third); n != 300 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// What was stored counts at once, although the store is not asked again.
func TestWhatWasUploadedCounts(t *testing.T) {
	t.Parallel()
	p := &possessions{}
	q := NewQuota(1000, 0, p, newClock())

	for range 2 {
		u := begin(t, q, "ada", 500)
		if n, err := read(u); n != 500 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}

		u.End(true)
	}

	_, err := q.Upload(t.Context(), "ada", nil, -1)
	wantOver(t, err, "the uploaded files of ada have 1000B")

	if p.asked != 1 {
		t.Errorf("the store was asked %d times", p.asked)
	}
}

func TestTheStoreIsAskedAgainWhenThereIsNoRoom(t *testing.T) {
	t.Parallel()
	p, c := &possessions{bytes: map[id.User]int64{"ada": 1000}}, newClock()
	q := NewQuota(1000, 0, p, c)

	for range 100 {
		_, err := q.Upload(t.Context(), "ada", nil, -1)
		wantOver(t, err, "the uploaded files of ada have 1000B")
	}

	if p.asked != 1 {
		t.Errorf("a user without room had the store asked %d times within a second", p.asked)
	}

	p.bytes["ada"] = 0 // it was removed
	c.now = c.now.Add(countAgain)

	if _, err := q.Upload(t.Context(), "ada", nil, 1000); err != nil {
		t.Errorf("after it was removed: %v", err)
	}

	if _, err := q.Upload(t.Context(), "ada", nil, 1000); err != nil || p.asked != 2 {
		t.Errorf("the store was asked %d times (%v)", p.asked, err)
	}
}

func TestAllUsersTogetherHaveALimit(t *testing.T) {
	t.Parallel()
	q := NewQuota(1000, 1500, &possessions{bytes: map[id.User]int64{"": 600, "ada": 600}}, newClock())
	u := begin(t, q, "bob", 900)

	if n, err := read(u); n != 900 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}

	_, err := q.Upload(t.Context(), "carol", nil, -1)
	wantOver(t, err, "the uploaded files of all users have reached the limit of 1500B")
	u.End(true)

	_, err = q.Upload(t.Context(), "carol", nil, -1)
	wantOver(t, err, "the uploaded files of all users have reached the limit of 1500B")
}

func TestWithoutLimitsTheStoreIsNotAsked(t *testing.T) {
	t.Parallel()
	p := &possessions{err: errors.New("down")}
	u := begin(t, NewQuota(0, 0, p, newClock()), "ada", 1<<20)

	if n, err := read(u); n != 1<<20 || err != nil || p.asked != 0 {
		t.Errorf("%d bytes, %v, asked %d times", n, err, p.asked)
	}
}

func TestWithoutTheStoreNothingIsUploaded(t *testing.T) {
	t.Parallel()
	p := &possessions{err: errors.New("down")}

	for _, q := range []*Quota{NewQuota(1000, 0, p, newClock()), NewQuota(0, 1000, p, newClock())} {
		if _, err := q.Upload(t.Context(), "ada", nil, -1); !errors.Is(err, p.err) {
			t.Errorf("error = %v, want %v", err, p.err)
		}
	}
}
