package server

import (
	"context"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// feedOf follows events in the background.
type feedOf struct {
	events chan api.Event
	done   chan error
}

func followEvents(t *testing.T, c *api.Client) *feedOf {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &feedOf{events: make(chan api.Event, 10_000), done: make(chan error, 1)}
	go func() {
		f.done <- c.FollowEvents(ctx, api.EventFilter{Tail: 1}, func(e api.Event, _ string) error {
			f.events <- e
			return nil
		})
	}()

	t.Cleanup(cancel)

	return f
}

// await returns the next event.
func (f *feedOf) await(t *testing.T) api.Event {
	t.Helper()

	select {
	case e := <-f.events:
		return e
	case err := <-f.done:
		t.Fatalf("the feed ended: %v", err)
	case <-time.After(5 * time.Minute):
		t.Fatal("no event came")
	}

	return api.Event{}
}

// awaitEnd returns why a feed ended. It bounds a hang; it measures nothing.
func awaitEnd(t *testing.T, done <-chan error) error {
	t.Helper()

	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Minute):
		t.Fatal("the feed goes on")
	}

	return nil
}

// A live feed ends, and says why, when its caller may no longer read it. Before the fix it went on until the server was
// restarted.
func TestALiveFeedEndsWithTheAccessOfItsCaller(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		end  func(y *yard, token id.Token)
		kind fault.Kind
		code string
	}{
		"revoked": {func(y *yard, token id.Token) {
			y.do(yardmaster.RevokeToken{Token: token, By: "test"})
		}, fault.Unknown, "token_revoked"},
		"all of a user revoked": {func(y *yard, _ id.Token) {
			y.do(yardmaster.RevokeTokens{Owner: "eva", By: "test"})
		}, fault.Unknown, "token_revoked"},
		"disabled": {func(y *yard, _ id.Token) {
			y.do(yardmaster.PutUser{User: "eva", Role: tenant.Admin, Disabled: true, By: "test"})
		}, fault.Denied, "user_disabled"},
		"demoted": {func(y *yard, _ id.Token) {
			y.do(yardmaster.PutUser{User: "eva", Role: tenant.Researcher, By: "test"})
		}, fault.Denied, "access_changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			n := y.join("n1")
			n.listen()
			ada, text := y.researcher("ada"), y.token("eva", tenant.Admin, tenant.ScopeRead)
			eva := y.client(text)
			parsed, err := auth.Parse(text)
			y.must(err)

			j, run := n.started(ada)
			feed, logs := followEvents(t, eva), watch(t, eva, j, api.LogFilter{})
			feed.await(t)
			n.upload(run, 0, 0, output(t, "o:before\n"), false)
			logs.line("before")

			tc.end(y, parsed.ID)
			wantFault(t, awaitEnd(t, feed.done), tc.kind, tc.code)
			wantFault(t, awaitEnd(t, logs.done), tc.kind, tc.code)
		})
	}
}

func TestALiveFeedEndsWhenItsTokenExpires(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.do(yardmaster.PutUser{User: "ada", Role: tenant.Researcher, By: "test"})
	token := y.newToken(tenant.Token{
		Kind: tenant.AccessToken, Owner: "ada", Scope: tenant.ScopeRead, Expires: y.clock.Now().Add(2 * time.Second),
	})

	wantFault(t, awaitEnd(t, followEvents(t, y.client(token)).done), fault.Unknown, "token_expired")
}

// A viewer who leaves a project loses its jobs at once, and nothing that happens afterwards is sent.
func TestALiveFeedEndsWithAMembership(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	n := y.join("n1")
	n.listen()
	ada, eva := y.researcher("ada"), y.client(y.token("eva", tenant.Viewer, tenant.ScopeRead))
	y.do(yardmaster.PutProject{Project: "vision", By: "test"})

	for _, u := range []id.User{"ada", "eva"} {
		y.do(yardmaster.PutMember{Member: tenant.Member{Project: "vision", User: u}, By: "test"})
	}

	j, run := n.started(ada, "project: vision")
	logs := watch(t, eva, j, api.LogFilter{})
	first := output(t, "o:before\n")
	n.upload(run, 0, 0, first, false)
	logs.line("before")

	y.do(yardmaster.PutMember{Member: tenant.Member{Project: "vision", User: "eva", Removed: true}, By: "test"})
	n.upload(run, 0, int64(len(first)), output(t, "o:after\n"), false)
	wantFault(t, awaitEnd(t, logs.done), fault.Denied, "access_changed")

	for len(logs.items) > 0 {
		if i := <-logs.items; i.Line != nil {
			t.Errorf("a line came after the end of the membership: %s", i.Line.Text)
		}
	}

	_, err := eva.Job(t.Context(), j)
	wantFault(t, err, fault.NotFound, "job_not_found")
}

// What others do does not end a feed.
func TestALiveFeedGoesOnWhenOthersLoseTheirAccess(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	y.token("bob", tenant.Researcher, tenant.ScopeRead)
	y.submit(ada, "run: a")
	feed := followEvents(t, ada)
	feed.await(t)

	y.do(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, Disabled: true, By: "test"})
	y.do(yardmaster.RevokeTokens{Owner: "bob", By: "test"})
	y.submit(ada, "run: b")

	if e := feed.await(t); e.Job != "j2" {
		t.Errorf("the next event is %+v, want one of j2", e)
	}
}
