package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/logs"
	"trainyard/internal/server/fanout"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
)

// tap is a response that takes what a feed writes, and stops taking when it is told to.
type tap struct {
	header  http.Header
	mu      sync.Mutex
	text    []byte
	items   []api.FeedItem
	flushes int
	writes  map[*byte]string // what was written, by where it lies in memory
	gate    chan struct{}    // closed while it takes
	changed chan struct{}    // closed at the next item
}

func newTap() *tap {
	t := &tap{header: http.Header{}, writes: map[*byte]string{}, gate: make(chan struct{}), changed: make(chan struct{})}
	close(t.gate)

	return t
}

func (t *tap) Header() http.Header { return t.header }

func (t *tap) WriteHeader(int) {}

func (t *tap) FlushError() error {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.flushes++

	return nil
}

func (t *tap) Write(p []byte) (int, error) {
	t.mu.Lock()
	gate := t.gate
	t.mu.Unlock()
	<-gate

	t.mu.Lock()
	defer t.mu.Unlock()

	t.writes[unsafe.SliceData(p)] = string(p)
	t.text = append(t.text, p...)

	whole, rest, found := cutLast(t.text, "\n\n")
	if !found {
		return len(p), nil
	}

	err := api.ReadFeed(bytes.NewReader(whole), func(i api.FeedItem) error {
		i.Data = bytes.Clone(i.Data)
		t.items = append(t.items, i)

		return nil
	})
	t.text = bytes.Clone(rest)

	close(t.changed)
	t.changed = make(chan struct{})

	return len(p), err
}

// cutLast cuts a text after the last place where it has sep.
func cutLast(text []byte, sep string) (before, after []byte, found bool) {
	i := bytes.LastIndex(text, []byte(sep))
	if i < 0 {
		return nil, text, false
	}

	return text[:i+len(sep)], text[i+len(sep):], true
}

// shut lets nothing through until the function that it returns is called.
func (t *tap) shut() (open func()) {
	t.mu.Lock()
	defer t.mu.Unlock()

	gate := make(chan struct{})
	t.gate = gate

	return sync.OnceFunc(func() { close(gate) })
}

// lines returns the lines that have come.
func (t *tap) lines(tb testing.TB) []api.LogLine {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()

	var out []api.LogLine
	for _, i := range t.items {
		if i.Kind != "" {
			continue
		}

		var l api.LogLine
		if err := json.Unmarshal(i.Data, &l); err != nil {
			tb.Fatal(err)
		}

		out = append(out, l)
	}

	return out
}

// until waits until ok is true of an item.
func (t *tap) until(tb testing.TB, what string, ok func(api.FeedItem) bool) {
	tb.Helper()

	for at := 0; ; {
		t.mu.Lock()
		items, changed := t.items, t.changed
		t.mu.Unlock()

		for ; at < len(items); at++ {
			if ok(items[at]) {
				return
			}
		}

		select {
		case <-changed:
		case <-time.After(5 * time.Minute):
			tb.Fatalf("%s did not come", what)
		}
	}
}

func (t *tap) line(tb testing.TB, text string) {
	tb.Helper()
	t.until(tb, text, func(i api.FeedItem) bool { return bytes.Contains(i.Data, []byte(`"text":"`+text+`"`)) })
}

func (t *tap) end(tb testing.TB) {
	tb.Helper()
	t.until(tb, "the end", func(i api.FeedItem) bool { return i.Kind == "end" })
}

// tapped follows the output of a job without a connection.
func (y *yard) tapped(token string, j id.Job, query string) *tap {
	y.t.Helper()
	ctx, cancel := context.WithCancel(y.t.Context())
	path := "/api/v1/jobs/" + string(j) + "/logs/follow"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, y.url+path+query, nil)
	y.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.RemoteAddr = "127.0.0.1:1"

	out, done := newTap(), make(chan struct{})
	go func() {
		defer close(done)

		y.srv.Handler().ServeHTTP(out, req)
	}()

	y.t.Cleanup(func() {
		cancel()

		out.mu.Lock()
		out.gate = make(chan struct{})
		close(out.gate)
		out.mu.Unlock()

		<-done
	})

	return out
}

// sharing waits until so many follow what is read once for all.
func (y *yard) sharing(t *testing.T, followers int) {
	t.Helper()
	eventually(t, "they share", func() bool { return y.srv.shared.Stats().Followers == followers })
}

// 200 followers of a job that printed 1,000 lines a second were ten seconds late after sixteen: each read job and run
// from the store and encoded the same lines, and each line was flushed.
func TestWhatManyFollowIsReadAndEncodedOnce(t *testing.T) {
	t.Parallel()
	const followers, uploads, lines = 20, 10, 40
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	n := y.join("n1")
	n.listen()
	j, run := n.started(y.client(token))

	size := n.upload(run, 0, 0, output(t, "o:first\n"), false)

	taps := make([]*tap, followers)
	for i := range taps {
		taps[i] = y.tapped(token, j, "")
	}

	for _, tap := range taps {
		tap.line(t, "first")
	}

	y.sharing(t, followers)

	flushes := make([]int, followers)
	for i, tap := range taps {
		tap.mu.Lock()
		flushes[i] = tap.flushes
		tap.mu.Unlock()
	}

	reads := y.store.lookups.Load()

	for u := range uploads {
		frames := make([]string, lines)
		for i := range frames {
			frames[i] = fmt.Sprintf("o:line %d\n", u*lines+i)
		}

		size = n.upload(run, 0, size, output(t, frames...), false)
		for _, tap := range taps {
			tap.line(t, fmt.Sprint("line ", u*lines+lines-1))
		}
	}

	// Some more, when it is time to look at what is not stored.
	if reads = y.store.lookups.Load() - reads; reads > followers*uploads/2 {
		t.Errorf("job and run were read %d times for %d uploads", reads, uploads)
	}

	where := map[*byte]bool{}
	for i, tap := range taps {
		if got := len(tap.lines(t)); got != uploads*lines+1 {
			t.Errorf("follower %d got %d lines", i, got)
		}

		tap.mu.Lock()
		if got := tap.flushes - flushes[i]; got > 3*uploads {
			t.Errorf("follower %d: %d flushes for %d lines in %d uploads", i, got, uploads*lines, uploads)
		}

		for at, text := range tap.writes {
			if strings.Contains(text, `"line 17"`) {
				where[at] = true
			}
		}

		tap.mu.Unlock()
	}

	if len(where) != 1 {
		t.Errorf("a line was encoded %d times for %d followers", len(where), followers)
	}

	n.upload(run, 0, size, nil, true)
	n.ends(run, 0, 0)

	for _, tap := range taps {
		tap.end(t)
	}

	y.sharing(t, 0)
}

// printed uploads lines of text until so many bytes are there, and returns how many lines and bytes that are.
func (n *node) printed(run id.Run, from, bytes int64) (lines int, size int64) {
	n.y.t.Helper()
	text := strings.Repeat("x", 100)

	for size = from; size < bytes; {
		frames := make([]string, 500)
		for i := range frames {
			frames[i] = fmt.Sprintf("o:%s %d\n", text, lines)
			lines++
		}

		size = n.upload(run, 0, size, output(n.y.t, frames...), false)
	}

	return lines, size
}

// blocked is a yard with a job that two follow, of whom one takes nothing any more.
type blocked struct {
	*yard
	n          *node
	j          id.Job
	run        id.Run
	fast, slow *tap
	open       func()
	lines      int
	size       int64
}

// newBlocked lets the job print more than is kept for the one who takes nothing.
func newBlocked(t *testing.T, patience time.Duration) *blocked {
	t.Helper()
	const room = 256 << 10
	y := newYard(t)
	y.srv.shared = fanout.NewHub[logKey, logPlace](room, room)
	y.srv.lagPatience = patience
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	b := &blocked{yard: y, n: y.join("n1")}
	b.n.listen()
	b.j, b.run = b.n.started(y.client(token))
	b.size = b.n.upload(b.run, 0, 0, output(t, "o:first\n"), false)
	b.fast, b.slow = y.tapped(token, b.j, ""), y.tapped(token, b.j, "")
	b.slow.line(t, "first")
	y.sharing(t, 2)

	b.open = b.slow.shut()
	t.Cleanup(b.open)

	b.lines, b.size = b.n.printed(b.run, b.size, 8*room)
	b.fast.line(t, fmt.Sprint(strings.Repeat("x", 100), " ", b.lines-1))

	if stats := y.srv.shared.Stats(); stats.Bytes > room {
		t.Errorf("%d bytes are kept for one who takes nothing", stats.Bytes)
	}

	return b
}

func TestASlowFollowerSkipsWithANote(t *testing.T) {
	t.Parallel()
	b := newBlocked(t, time.Hour)
	b.advance(time.Hour)
	b.open()

	note := func() (out api.LogLine) {
		for _, l := range b.slow.lines(t) {
			if l.Skipped > 0 {
				out = l
			}
		}

		return out
	}

	b.slow.until(t, "the note", func(i api.FeedItem) bool { return bytes.Contains(i.Data, []byte(`"skipped"`)) })
	b.size = b.n.upload(b.run, 0, b.size, output(t, "o:after\n"), false)
	b.slow.line(t, "after")

	got, all := note(), b.slow.lines(t)
	want := fmt.Sprintf("… %d,%03d lines skipped: read them with trainyard logs %s", got.Skipped/1000, got.Skipped%1000, b.j)
	if got.Text != want || got.Stream != "yard" || got.Run != b.run {
		t.Errorf("the note is %+v, want %s", got, want)
	}

	// The first line, those before the note and after it, and the note itself.
	if sum := len(all) - 3 + int(got.Skipped); sum != b.lines {
		t.Errorf("%d lines came and %d were skipped, of %d", len(all)-3, got.Skipped, b.lines)
	}

	if skipped := b.srv.shared.Stats().Skipped; skipped != got.Skipped {
		t.Errorf("the metrics say %d", skipped)
	}

	// The cursor of the note is after what was skipped.
	for _, i := range b.slow.items {
		if bytes.Contains(i.Data, []byte(`"skipped"`)) {
			page, err := b.admin().Logs(t.Context(), b.j, api.LogFilter{Page: api.Page{Cursor: i.ID, Limit: 10}})
			b.must(err)

			if len(page.Lines) != 1 || page.Lines[0].Text != "after" {
				t.Errorf("after the note come %+v", page.Lines)
			}
		}
	}

	for _, l := range b.fast.lines(t) {
		if l.Skipped > 0 {
			t.Errorf("who keeps up got %+v", l)
		}
	}
}

func TestNothingIsSkippedForOneWhoCatchesUp(t *testing.T) {
	t.Parallel()
	b := newBlocked(t, time.Hour)
	b.open() // before patience ends
	b.n.upload(b.run, 0, b.size, output(t, "o:after\n"), false)
	b.slow.line(t, "after")
	b.sharing(t, 2)
	sameLines(t, b)
}

func TestNothingIsSkippedOfAJobThatHasEnded(t *testing.T) {
	t.Parallel()
	b := newBlocked(t, time.Hour)
	b.n.upload(b.run, 0, b.size, output(t, "o:after\n"), true)
	b.n.ends(b.run, 0, 0)
	b.fast.end(t)
	b.advance(2 * time.Hour)
	b.open()
	b.slow.end(t)
	sameLines(t, b)
}

// sameLines fails if the slow follower did not get every line once.
func sameLines(t *testing.T, b *blocked) {
	t.Helper()
	texts := func(lines []api.LogLine) (out []string) {
		for _, l := range lines {
			out = append(out, l.Text)
		}

		return out
	}

	b.fast.line(t, "after")

	if diff := cmp.Diff(texts(b.fast.lines(t)), texts(b.slow.lines(t))); diff != "" {
		t.Errorf("(-fast +slow):\n%.2000s", diff)
	}
}

// Whoever shares with others sees through every filter what one who reads alone sees.
func TestWhatIsSharedIsWhatIsRead(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	c, a, b := y.client(token), y.join("a"), y.join("b")
	a.listen()
	b.listen()
	j := y.submit(c, "run: a\nresources: {nodes: 2}")[0].ID
	run := a.awaitRun(j, 1)
	b.awaitRun(j, 1)
	a.starts(run, 0)
	b.starts(run, 1)

	filters := []string{"", "?rank=1", "?stream=stderr", "?grep=3$", "?since=1970-01-01T00:00:01.005Z", "?collapse=true"}
	taps := map[string][]*tap{}
	add := func() {
		for _, f := range filters {
			taps[f] = append(taps[f], y.tapped(token, j, f))
		}
	}

	add()

	var sizes [2]int64
	upload := func(rank int, n *node, text []byte) { sizes[rank] = n.upload(run, rank, sizes[rank], text, false) }

	for i := range 12 {
		if i%4 == 2 {
			add() // while it prints
		}

		for rank, n := range []*node{a, b} {
			text := output(t, fmt.Sprintf("o:r%d line %d\n", rank, i), fmt.Sprintf("e:other %d\n", i),
				fmt.Sprintf("e: %d%%\r%d%%", i, 2*i), // a progress bar that is still moving
				"o:between\n", "e:\r100%\n", "o:end 3\n")
			cut := i * len(text) / 12 // anywhere
			upload(rank, n, text[:cut])
			upload(rank, n, text[cut:])
		}
	}

	a.upload(run, 0, sizes[0], nil, true)
	b.upload(run, 1, sizes[1], nil, true)
	a.ends(run, 0, 0)
	b.ends(run, 1, 0)

	// Lines that have come in pieces, of the two ranks in any order.
	whole := func(f string, lines []api.LogLine) (out []string) {
		open := map[string]string{}

		for _, l := range lines {
			from := fmt.Sprint(l.Rank, " ", l.Stream)
			open[from] += l.Text

			if !l.Partial {
				text := []byte(open[from])
				if strings.Contains(f, "collapse") {
					text = logs.LastState(text)
				}

				out = append(out, from+" "+string(text))
				open[from] = ""
			}
		}

		slices.Sort(out)

		return out
	}

	for _, f := range filters {
		alone := y.tapped(token, j, f)
		alone.end(t)

		want := whole(f, alone.lines(t))
		if len(want) < 12 {
			t.Fatalf("%q lets %d lines through", f, len(want))
		}

		for i, tap := range taps[f] {
			tap.end(t)

			if diff := cmp.Diff(want, whole(f, tap.lines(t))); diff != "" {
				t.Errorf("follower %d with %q (-alone +shared):\n%s", i, f, diff)
			}
		}
	}
}

// Searches of one user are limited, but a live feed is not ended because there are many just now.
func TestAFollowerWaitsForTheTurnOfItsSearch(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	n := y.join("n1")
	n.listen()
	j, run := n.started(y.client(token))
	n.upload(run, 0, 0, output(t, "o:first\n", "o:second\n"), false)

	var others []func()
	for range searchesEach {
		leave, err := y.srv.searches.mine.Take("ada")
		y.must(err)
		others = append(others, leave)
	}

	_, err := y.srv.searches.begin(t.Context(), "ada")
	if fault.KindOf(err) != fault.OverLimit {
		t.Fatalf("one more search: %v", err)
	}

	tap := y.tapped(token, j, "?grep=second")
	clock.Sleep(t.Context(), 2*awaitEvery) // it is refused by then, if it is refused

	for _, leave := range others {
		leave()
	}

	tap.line(t, "second")
}

// A job may change after its end. Whoever has seen that must still learn that there is no more output.
func TestTheEndIsSentToOneWhoKnowsMoreOfTheJob(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	c, n := y.client(token), y.join("n1")
	n.listen()
	j, run := n.started(c)
	n.upload(run, 0, 0, output(t, "o:first\n"), true)
	n.ends(run, 0, 0)
	y.tapped(token, j, "").end(t)

	who, id, err := y.srv.Directory.Authenticate(token, y.srv.Clock.Now())
	y.must(err)

	ctx := context.WithValue(t.Context(), callerKey{}, caller{who, id})
	in := &logInput{Job: string(j), Rank: -1}
	r, err := y.srv.openFollowed(ctx, in)
	y.must(err)

	src := &logSource{logReader: r, input: in}
	own := src.fork()
	hub := fanout.NewHub[logKey, logPlace](sharedOutput, allSharedOutput)
	member, ok := hub.Join(ctx, logKey{}, src.joint(), logPlace{news: &jobNews{}},
		func(ctx context.Context, feed *fanout.Feed[logKey, logPlace]) error {
			return y.srv.shareLogs(ctx, src, jobNews{}, feed)
		})
	if !ok {
		t.Fatal("nothing is shared")
	}

	tap := newTap()
	out := httpapi.NewStream(tap)
	news := y.srv.newJobFeed(out)
	news.seq = 1 << 40
	f := &logFollower{s: y.srv, src: own, out: out, who: callerOf(ctx), news: news, member: member}
	defer f.leave()

	if behind, err := f.live(ctx); behind || err != nil {
		t.Fatal(behind, err)
	}

	tap.end(t)
	for _, i := range tap.items {
		if i.Kind == "state" {
			t.Errorf("the state of a job of which more is known: %s", i.Data)
		}
	}
}

// A cursor that is none of ours must not keep others from their lines.
func TestAWrongCursorIsNotShared(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	n := y.join("n1")
	n.listen()
	j, run := n.started(y.client(token))
	size := n.upload(run, 0, 0, output(t, "o:first\n"), false)

	for _, cursor := range []string{"1/999999+0", "9", "1/0+7"} {
		y.tapped(token, j, "?cursor="+url.QueryEscape(cursor)).until(t, "the state", func(i api.FeedItem) bool { return i.Kind == "state" })
	}

	good := y.tapped(token, j, "")
	good.line(t, "first")
	n.upload(run, 0, size, output(t, "o:second\n"), false)
	good.line(t, "second")
}
