package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var errEnough = errors.New("enough")

// follow returns events as they come until ok is true of one.
func follow(t *testing.T, c *api.Client, f api.EventFilter, ok func(api.Event) bool) []api.Event {
	t.Helper()
	var got []api.Event
	err := c.FollowEvents(t.Context(), f, func(e api.Event, cursor string) error {
		if cursor != strconv.FormatUint(e.Seq, 10) {
			t.Errorf("event %d has the cursor %q", e.Seq, cursor)
		}

		got = append(got, e)

		if ok(e) {
			return errEnough
		}

		return nil
	})

	if !errors.Is(err, errEnough) {
		t.Fatalf("the feed ended: %v", err)
	}

	return got
}

// allEvents reads the feed page by page.
func allEvents(t *testing.T, c *api.Client, f api.EventFilter) []api.Event {
	t.Helper()
	var all []api.Event
	for {
		page, err := c.Events(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}

		if len(page.Events) == 0 {
			return all
		}

		all, f.Cursor, f.Tail = append(all, page.Events...), page.Next, 0
	}
}

func TestAFollowerMissesNothingWhileManySubmit(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	root := y.admin()
	const clients, files, perFile = 20, 10, 50 // 10,000 events

	file := ""
	for i := range perFile {
		file += fmt.Sprintf("---\nname: j%d\nrun: a\n", i)
	}

	last := func(e api.Event) bool { return e.Job == id.NewJob(clients*files*perFile) && e.Kind == "job.submitted" }

	// Some follow from the beginning, one resumes again and again after what it saw.
	var followers, wg sync.WaitGroup

	got := make([][]api.Event, 3)
	for i := range got {
		followers.Go(func() {
			f := api.EventFilter{Page: api.Page{Cursor: "0"}}
			stop := last
			if i == 2 {
				stop = func(e api.Event) bool { return e.Seq%97 == 0 || last(e) }
			}

			for {
				got[i] = append(got[i], follow(t, root, f, stop)...)
				end := got[i][len(got[i])-1]
				if last(end) {
					return
				}

				f.Cursor = strconv.FormatUint(end.Seq, 10)
			}
		})
	}

	for i := range clients {
		c := y.researcher(id.User(fmt.Sprintf("u%d", i)))
		wg.Go(func() {
			for range files {
				if _, err := c.Submit(t.Context(), api.SubmitRequest{File: file}, ""); err != nil {
					t.Error(err)
				}
			}
		})
	}

	wg.Wait()
	followers.Wait()

	for i := range got {
		if len(got[i]) < clients*files*perFile {
			t.Errorf("follower %d saw %d events", i, len(got[i]))
		}

		for k, e := range got[i] {
			if e.Seq != uint64(k+1) {
				t.Fatalf("follower %d: entry %d has the number %d", i, k, e.Seq)
			}
		}
	}

	if diff := cmp.Diff(allEvents(t, root, api.EventFilter{Page: api.Page{Limit: 500}}), got[0]); diff != "" {
		t.Errorf("(-store +followed):\n%.2000s", diff)
	}
}

func TestEventsAreChosen(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	root, n := y.admin(), y.join("n1")
	ada, bob := y.researcher("ada"), y.researcher("bob")
	n.listen()
	j, run := n.started(ada)
	n.ends(run, 0, 0)
	y.submit(bob, "run: a\nresources: {memory: 900GB}")
	y.submit(ada, "run: b\nresources: {memory: 900GB}")
	all := allEvents(t, root, api.EventFilter{})
	pick := func(keep func(api.Event) bool) (out []api.Event) {
		for _, e := range all {
			if keep(e) {
				out = append(out, e)
			}
		}

		return out
	}

	tests := map[string]struct {
		c    *api.Client
		f    api.EventFilter
		keep func(api.Event) bool
	}{
		"all": {root, api.EventFilter{}, func(api.Event) bool { return true }},
		"of a kind": {
			root,
			api.EventFilter{Kind: "job.submitted"},
			func(e api.Event) bool { return e.Kind == "job.submitted" },
		},
		"of many kinds": {
			root,
			api.EventFilter{Kind: "node"},
			func(e api.Event) bool { return len(e.Kind) > 5 && e.Kind[:5] == "node." },
		},
		"half a kind": {root, api.EventFilter{Kind: "jo"}, func(api.Event) bool { return false }},
		"of a job":    {root, api.EventFilter{Job: j}, func(e api.Event) bool { return e.Job == j }},
		"of a node":   {root, api.EventFilter{Node: "n1"}, func(e api.Event) bool { return e.Node == "n1" }},
		"own":         {ada, api.EventFilter{}, func(e api.Event) bool { return e.Owner == "ada" }},
		"of another":  {bob, api.EventFilter{Job: j}, func(api.Event) bool { return false }},
		"after a cursor": {ada, api.EventFilter{Page: api.Page{Cursor: strconv.FormatUint(all[len(all)-3].Seq, 10)}},
			func(e api.Event) bool { return e.Owner == "ada" && e.Seq > all[len(all)-3].Seq }},
	}

	for name, tt := range tests {
		want := pick(tt.keep)
		for _, limit := range []int{1, 3, 500} {
			tt.f.Limit = limit
			if diff := cmp.Diff(want, allEvents(t, tt.c, tt.f)); diff != "" {
				t.Errorf("%s in pages of %d (-want +got):\n%s", name, limit, diff)
			}
		}

		for tail := 1; tail <= len(all)+1; tail += 3 {
			f := tt.f
			if f.Cursor != "" {
				continue
			}

			f.Tail = tail
			if diff := cmp.Diff(want[max(0, len(want)-tail):], allEvents(t, tt.c, f), cmpEmpty); diff != "" {
				t.Errorf("the last %d of %s (-want +got):\n%s", tail, name, diff)
			}
		}

		// What is followed is the same, from memory and, past the last server, from the store.
		if len(want) == 0 {
			continue
		}

		end := want[len(want)-1].Seq

		f := tt.f
		if f.Cursor == "" {
			f.Cursor = "0"
		}

		if diff := cmp.Diff(want, follow(t, tt.c, f, func(e api.Event) bool { return e.Seq == end })); diff != "" {
			t.Errorf("%s, followed (-want +got):\n%s", name, diff)
		}

		f.Cursor, f.Tail = "", 1
		if tt.f.Cursor == "" {
			if got := follow(t, tt.c, f, func(api.Event) bool { return true }); got[0].Seq != end {
				t.Errorf("%s: the last one is %d, want %d", name, got[0].Seq, end)
			}
		}
	}
}

var cmpEmpty = cmp.Transformer("empty", func(in []api.Event) []api.Event {
	if len(in) == 0 {
		return nil
	}

	return in[:len(in):len(in)]
})

func TestAfterARestartTheFeedGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var token string
	var before []api.Event
	t.Run("first", func(t *testing.T) {
		y := startYard(t, dir)
		y.researcher("ada")
		token = y.token("root", tenant.Admin, tenant.ScopeAdmin)
		before = allEvents(t, y.client(token), api.EventFilter{})
	})

	t.Run("second", func(t *testing.T) {
		y := startYard(t, dir)
		root, last := y.client(token), before[len(before)-1].Seq
		if got := y.srv.Feed.Last(); got != last {
			t.Errorf("the feed goes on after %d, want %d", got, last)
		}

		// One follows all of it, from the store and then live; what it filters makes no difference.
		for _, kind := range []string{"", "user"} {
			got := follow(t, root, api.EventFilter{Kind: kind, Page: api.Page{Cursor: "0"}}, func(e api.Event) bool {
				if e.Seq == last {
					y.do(yardmaster.PutUser{User: "zoe", Role: tenant.Researcher, By: "test"})
				}

				return e.Seq > last && e.Owner == "zoe"
			})

			if end := got[len(got)-1]; kind == "" && (end.Seq != last+1 || len(got) != len(before)+1) {
				t.Errorf("after %d events there were %d, the last of which is %d", len(before), len(got), end.Seq)
			}

			last = y.srv.Feed.Last()
			before = allEvents(t, root, api.EventFilter{})
		}
	})
}

func TestAFollowerWithoutACursorSeesWhatIsNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var token string
	t.Run("first", func(t *testing.T) {
		y := startYard(t, dir)
		token = y.token("root", tenant.Admin, tenant.ScopeAdmin)
	})

	t.Run("second", func(t *testing.T) {
		y := startYard(t, dir)
		last := y.srv.Feed.Last()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for { // until the follower is there, however long that takes
				select {
				case <-stop:
					return
				default:
					y.do(yardmaster.PutUser{User: "zoe", Role: tenant.Researcher, By: "test"})
				}
			}
		})

		got := follow(t, y.client(token), api.EventFilter{}, func(api.Event) bool { return true })
		close(stop)
		wg.Wait()

		if got[0].Seq <= last {
			t.Errorf("it began with %d, which was there before", got[0].Seq)
		}
	})
}

func TestSubmissionsSayWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	y.submit(ada, "run: b\nexpect: 2h\nresources: {gpus: 3}")

	for _, specs := range []bool{false, true} {
		events := allEvents(t, ada, api.EventFilter{Kind: "job.submitted", Specs: specs, Page: api.Page{Limit: 10}})
		if len(events) != 1 {
			t.Fatalf("%d submissions, want one", len(events))
		}

		var spec job.Spec

		if !specs {
			if events[0].Spec != nil {
				t.Errorf("the spec %s was told without being asked for", events[0].Spec)
			}

			continue
		}

		if err := json.Unmarshal(events[0].Spec, &spec); err != nil || spec.Resources.GPUs.Min != 3 ||
			spec.Expect.String() != "2h" {
			t.Errorf("the spec is %s, %v; want three GPUs for 2h", events[0].Spec, err)
		}
	}
}

// Pages of older events, as the portal reads them: the last before the oldest that it has.
func TestOlderEventsAreReadBackwards(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	root := y.admin()
	token := y.token("root", tenant.Admin, tenant.ScopeRead)

	for range 7 {
		y.submit(root, "run: a\nresources: {memory: 900GB}")
	}

	all := allEvents(t, root, api.EventFilter{Kind: "job"})
	var got []api.Event

	for before := "0"; ; {
		var page api.EventPage
		a := y.raw(y.http, http.MethodGet, "/api/v1/events?kind=job&tail=3&before="+before, token, "")
		y.must(json.Unmarshal(a.body, &page))

		if len(page.Events) == 0 {
			break
		}

		got = append(page.Events, got...)
		before = strconv.FormatUint(page.Events[0].Seq, 10)
	}

	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("read backwards in pages of three (-want +got):\n%s", diff)
	}
}
