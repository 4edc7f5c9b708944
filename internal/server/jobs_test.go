package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func TestJobsAreListedByWhatIsAsked(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, root, n := y.researcher("ada"), y.admin(), y.join("n1")
	bob := y.researcher("bob")
	n.listen()
	n.started(ada)                                                                                   // j1
	y.submit(ada, "name: big-one\nproject: vision\nrun: b\npriority: 5\nresources: {memory: 900GB}") // j2
	y.submit(bob, "name: big-two\nrun: c\nresources: {memory: 900GB}")                               // j3
	_, err := bob.CancelJob(t.Context(), "j3")
	y.must(err)
	y.advance(time.Hour)
	later := y.clock.Now()
	y.submit(ada, "name: late_x\nrun: d\nresources: {memory: 900GB}") // j4

	for name, tt := range map[string]struct {
		c    *api.Client
		f    api.JobFilter
		want []id.Job
	}{
		"all for an admin":      {root, api.JobFilter{}, []id.Job{"j4", "j3", "j2", "j1"}},
		"own for a researcher":  {ada, api.JobFilter{}, []id.Job{"j4", "j2", "j1"}},
		"own by name":           {bob, api.JobFilter{Owner: "bob"}, []id.Job{"j3"}},
		"of an owner":           {root, api.JobFilter{Owner: "bob"}, []id.Job{"j3"}},
		"of an unknown owner":   {root, api.JobFilter{Owner: "zoe"}, []id.Job{}},
		"in a state":            {root, api.JobFilter{States: []job.State{job.Running}}, []id.Job{"j1"}},
		"in one of two states":  {root, api.JobFilter{States: []job.State{job.Running, job.Cancelled}}, []id.Job{"j3", "j1"}},
		"by a part of the name": {root, api.JobFilter{Name: "big"}, []id.Job{"j3", "j2"}},
		"by a sign of LIKE":     {root, api.JobFilter{Name: "_"}, []id.Job{"j4"}},
		"of a project":          {root, api.JobFilter{Project: "vision"}, []id.Job{"j2"}},
		"on a node":             {root, api.JobFilter{Node: "n1"}, []id.Job{"j1"}},
		"since a time":          {root, api.JobFilter{Since: later}, []id.Job{"j4"}},
		"below a cursor":        {root, api.JobFilter{Page: api.Page{Cursor: "j3"}}, []id.Job{"j2", "j1"}},
		"with a limit":          {root, api.JobFilter{Page: api.Page{Limit: 1}}, []id.Job{"j4"}},
		"past the end":          {root, api.JobFilter{Page: api.Page{Cursor: "j1"}}, []id.Job{}},
	} {
		page, err := tt.c.Jobs(t.Context(), tt.f)
		y.must(err)

		if diff := cmp.Diff(tt.want, ids(page.Jobs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}

		if (page.Next != "") != (tt.f.Limit == 1) {
			t.Errorf("%s: the next page is %q", name, page.Next)
		}
	}

	page, err := ada.Jobs(t.Context(), api.JobFilter{States: []job.State{job.Running}})
	y.must(err)

	if diff := cmp.Diff([]id.Node{"n1"}, page.Jobs[0].Nodes); diff != "" {
		t.Errorf("where it runs (-want +got):\n%s", diff)
	}
}

func TestPagesHoldEveryJobOnceWhileNewOnesArrive(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")

	const before = 95
	for range before {
		y.submit(c, "run: a")
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: new"}, ""); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})

	for _, limit := range []int{1, 7, 50} {
		seen := map[id.Job]int{}

		for cursor, pages := "", 0; ; pages++ {
			page, err := c.Jobs(t.Context(), api.JobFilter{Page: api.Page{Cursor: cursor, Limit: limit}})
			y.must(err)

			if len(page.Jobs) > limit {
				t.Fatalf("a page of %d has %d", limit, len(page.Jobs))
			}

			for _, j := range page.Jobs {
				seen[j.ID]++
			}

			cursor = page.Next
			if cursor == "" {
				break
			}
		}

		for i := 1; i <= before; i++ {
			if n := seen[id.NewJob(uint64(i))]; n != 1 {
				t.Errorf("with pages of %d job %d came %d times", limit, i, n)
			}
		}
	}

	close(stop)
	wg.Wait()
}

// walk reads all pages of a list and returns the names on them.
func walk(t *testing.T, read func(api.Page) ([]string, string, error)) []string {
	t.Helper()
	var all []string

	for cursor := ""; ; {
		names, next, err := read(api.Page{Cursor: cursor, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}

		if len(names) > 2 {
			t.Errorf("a page of 2 has %d", len(names))
		}

		all = append(all, names...)

		cursor = next
		if cursor == "" {
			return all
		}
	}
}

func TestUsersTokensAndNodesArePaged(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	root := y.admin()

	var users, nodes []string
	for i := range 5 {
		y.researcher(id.User(fmt.Sprintf("u%d", i)))
		users = append(users, fmt.Sprintf("u%d", i))
		nodes = append(nodes, string(y.join(fmt.Sprintf("n%d", i)).name))
	}

	got := walk(t, func(p api.Page) (names []string, next string, err error) {
		page, err := root.Users(t.Context(), p)
		for _, u := range page.Users {
			names = append(names, string(u.ID))
		}

		return names, page.Next, err
	})

	if diff := cmp.Diff(append([]string{"root"}, users...), got); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}

	got = walk(t, func(p api.Page) (names []string, next string, err error) {
		page, err := root.Nodes(t.Context(), p)
		for _, n := range page.Nodes {
			names = append(names, string(n.ID))
		}

		return names, page.Next, err
	})

	if diff := cmp.Diff(nodes, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}

	got = walk(t, func(p api.Page) (names []string, next string, err error) {
		page, err := root.Tokens(t.Context(), "", p)
		for _, token := range page.Tokens {
			names = append(names, string(token.ID))
		}

		return names, page.Next, err
	})

	if !slices.IsSorted(got) || len(got) != len(slices.Compact(slices.Clone(got))) || len(got) != 1+5+5 {
		t.Errorf("tokens: %v", got)
	}
}

func TestATokenIsWorthNothingOnceItIsRevoked(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	root := y.admin()
	made, err := root.CreateToken(
		t.Context(),
		api.TokenRequest{Kind: "access", Owner: "root", Scope: "read", TTL: "2h", Note: "for\u0000the night"},
	)

	y.must(err)

	if left := made.Expires.Sub(y.clock.Now()); left > 2*time.Hour || left < time.Hour {
		t.Errorf("it is good for %s", left)
	}

	c := y.client(made.Text)
	who, err := c.Whoami(t.Context())
	y.must(err)

	if who.User != "root" || who.Scope != "read" || who.Token != made.ID || who.Expires.IsZero() {
		t.Errorf("it stands for %+v", who)
	}

	list, err := root.Tokens(t.Context(), "root", api.Page{})
	y.must(err)

	i := slices.IndexFunc(list.Tokens, func(k api.Token) bool { return k.ID == made.ID })
	if i < 0 || list.Tokens[i].LastUsed == nil || list.Tokens[i].Revoked {
		t.Fatalf("the list says %+v", list.Tokens)
	}

	y.must(root.RevokeToken(t.Context(), made.ID))
	_, err = c.Whoami(t.Context())
	wantFault(t, err, "unknown_user", "token_revoked")
	y.must(root.RevokeToken(t.Context(), made.ID)) // again is no error
}

func TestABootstrapTokenLogsInOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.admin()
	token := tokenOf("bootstrap", "root", y.clock.Now().Add(time.Hour))
	token.Scope = "admin"
	boot := y.newToken(token)
	var wg sync.WaitGroup

	texts := make([]string, 8)
	for i := range texts {
		wg.Go(func() {
			if got, err := y.client("").Login(t.Context(), api.LoginRequest{Token: boot}); err == nil {
				texts[i] = got.Text
			}
		})
	}

	wg.Wait()

	texts = slices.DeleteFunc(texts, func(s string) bool { return s == "" })
	if len(texts) != 1 {
		t.Fatalf("%d logins succeeded", len(texts))
	}

	who, err := y.client(texts[0]).Whoami(t.Context())
	y.must(err)

	if who.User != "root" || who.Role != "admin" || who.Scope != "admin" {
		t.Errorf("it stands for %+v", who)
	}
}

func TestTheOldestJobsCanComeFirst(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	for range 5 {
		y.submit(ada, "run: a")
	}

	names := walk(t, func(p api.Page) ([]string, string, error) {
		page, err := ada.Jobs(t.Context(), api.JobFilter{Oldest: true, Counts: true, Page: p})

		var names []string
		for _, j := range page.Jobs {
			names = append(names, string(j.ID))
		}

		if len(page.Counts) != 1 || page.Counts[0].Jobs != 5 {
			t.Errorf("a page counts %+v", page.Counts)
		}

		return names, page.Next, err
	})

	if want := []string{"j1", "j2", "j3", "j4", "j5"}; !slices.Equal(names, want) {
		t.Errorf("got %s, want %s", names, want)
	}
}

func TestJobsAreSortedAndPaged(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	for _, name := range []string{"cat", "a", "bee", "ant", "bee"} {
		y.submit(ada, "run: a\nname: "+name)
	}

	if _, err := ada.CancelJob(t.Context(), "j3"); err != nil {
		t.Fatal(err)
	}

	if _, err := ada.CancelJob(t.Context(), "j1"); err != nil {
		t.Fatal(err)
	}

	for by, want := range map[string][]string{
		"name":   {"j2", "j4", "j3", "j5", "j1"},
		"-name":  {"j1", "j5", "j3", "j4", "j2"},
		"ended":  {"j2", "j4", "j5", "j3", "j1"},
		"-ended": {"j1", "j3", "j5", "j4", "j2"},
		"-cost":  {"j5", "j4", "j3", "j2", "j1"}, // nothing costs anything
	} {
		names := walk(t, func(p api.Page) ([]string, string, error) {
			page, err := ada.Jobs(t.Context(), api.JobFilter{Sort: by, Page: p})

			var names []string
			for _, j := range page.Jobs {
				names = append(names, string(j.ID))
			}

			return names, page.Next, err
		})

		if !slices.Equal(names, want) {
			t.Errorf("by %s: got %s, want %s", by, names, want)
		}
	}

	for _, cursor := range []string{"j1", "x/j1", "1.5/", "1.5/x"} {
		_, err := ada.Jobs(t.Context(), api.JobFilter{Sort: "-cost", Page: api.Page{Cursor: cursor}})
		wantFault(t, err, fault.Invalid, "bad_cursor")
	}
}
