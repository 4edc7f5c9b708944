package server

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"trainyard/internal/yardmaster"
)

func refusalOf(actor, code string) accessKey {
	return accessKey{
		Origin: yardmaster.Origin{Actor: actor, Address: "10.0.0.1"}, kind: yardmaster.EventRefused, code: code,
	}
}

func TestRefusedCallsAreCountedAndDoNotFloodTheFeed(t *testing.T) {
	t.Parallel()
	clk := &stoodClock{now: time.Unix(1000, 0)}
	l := newAccessLog(clk)
	key := refusalOf("mallory", "not_allowed")
	l.add(key, 1, "GET /a")

	if taken := l.take(); len(taken) != 1 || taken[key].calls != 1 {
		t.Fatalf("the first call is not taken at once: %v", taken)
	}

	for range 500 {
		l.add(key, 1, "GET /b")
	}

	clk.now = clk.now.Add(59 * time.Second)

	if taken := l.take(); len(taken) != 0 {
		t.Fatalf("taken within the minute: %v", taken)
	}

	clk.now = clk.now.Add(time.Second)

	if taken := l.take(); len(taken) != 1 || taken[key].calls != 500 || taken[key].last != "GET /b" {
		t.Fatalf("taken after a minute: %v", taken)
	}

	// As many callers as anybody can make up: a bounded number of entries, and no call is lost.
	calls, entries := 0, 0
	for i := range 5000 {
		l.add(refusalOf(fmt.Sprint("m", i), "token_unknown"), 1, "GET /c")
	}

	for minute := 0; calls < 5000 && minute < 60; minute++ {
		taken := l.take()
		if len(taken) > accessBudget {
			t.Fatalf("%d entries in a minute", len(taken))
		}

		for _, count := range taken {
			calls += count.calls
		}

		entries += len(taken)
		clk.now = clk.now.Add(time.Minute)
	}

	if calls != 5000 || entries > accessKeys+1 {
		t.Errorf("%d calls in %d entries", calls, entries)
	}
}

// A text that a caller makes up, such as a path, is not in the feed.
func TestWhatIsObservedOfAnAnswer(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		status  int
		text    string
		refused bool
		code    string
	}{
		{http.StatusOK, `{"code":"x"}`, false, "OK"},
		{http.StatusNotFound, `{"code":"job_not_found"}`, false, "job_not_found"},
		{http.StatusForbidden, `{"code":"not_allowed"}`, true, "not_allowed"},
		{http.StatusUnauthorized, `no JSON`, true, "Unauthorized"},
		{http.StatusTooManyRequests, `{"code":"too_often"}`, true, "too_often"},
	} {
		o := &observed{ResponseWriter: blank{http.Header{}}}
		o.WriteHeader(c.status)

		if _, err := o.Write([]byte(c.text)); err != nil {
			t.Fatal(err)
		}

		if o.refused() != c.refused || o.code() != c.code {
			t.Errorf("%d %s: refused %v, code %q", c.status, c.text, o.refused(), o.code())
		}
	}
}

// blank is an answer that nobody reads.
type blank struct{ header http.Header }

func (b blank) Header() http.Header          { return b.header }
func (blank) Write(text []byte) (int, error) { return len(text), nil }
func (blank) WriteHeader(int)                {}
