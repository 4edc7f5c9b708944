package walls_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// tapped follows the events that a user may see and the output of a job.
type tapped struct{ events, output chan error }

// tap opens both feeds and waits until each has brought something.
func (u *user) tap(t *testing.T, j id.Job) *tapped {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)

	first := make(chan struct{}, 2)
	arrived := func() func() {
		done := false

		return func() {
			if !done {
				done = true
				first <- struct{}{}
			}
		}
	}

	f := &tapped{make(chan error, 1), make(chan error, 1)}
	go func() {
		seen := arrived()
		f.events <- u.FollowEvents(ctx, api.EventFilter{Tail: 10}, func(api.Event, string) error {
			seen()
			return nil
		})
	}()

	go func() {
		seen := arrived()
		f.output <- u.FollowLogs(ctx, j, api.LogFilter{}, func(i api.LogItem) error {
			if i.Line != nil {
				seen()
			}

			return nil
		})
	}()

	for range 2 {
		select {
		case <-first:
		case <-time.After(patience):
			t.Fatal("nothing came on a feed")
		}
	}

	return f
}

// severed waits until both feeds have ended, and checks the reason that their reader was given.
func (f *tapped) severed(t *testing.T, how, code string) {
	t.Helper()

	for what, done := range map[string]chan error{"events": f.events, "output": f.output} {
		select {
		case err := <-done:
			var reason *fault.Error
			if !errors.As(err, &reason) || reason.Code != code {
				t.Errorf("%s: the feed of %s ended with %v, want %s", how, what, err, code)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the feed of %s goes on", how, what)
		}
	}
}

// TestS09_LiveFeedsDoNotOutliveTheAccess keeps feeds open while the access behind them is taken away.
func TestS09_LiveFeedsDoNotOutliveTheAccess(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north")
	alice := y.user(t, "alice")
	j := alice.submit(t, script("while sleep 0.2; do echo tick; done"))

	spy := func(name string, ttl string) *user {
		y.user(t, name)
		_, err := y.admin.PutUser(t.Context(), id.User(name), api.UserRequest{Role: tenant.Operator})
		must(t, err)

		made, err := y.admin.CreateToken(t.Context(), api.TokenRequest{
			Kind: tenant.AccessToken, Owner: id.User(name), Scope: tenant.ScopeRead, TTL: ttl,
		})
		must(t, err)

		u := y.login(t, name+"-spy", made.Text)
		u.token = made.ID

		return u
	}

	revoked, disabled, demoted, expired := spy("rita", ""), spy("dora", ""), spy("dino", ""), spy("emil", "20s")
	feeds := map[*user]*tapped{}
	for _, u := range []*user{revoked, disabled, demoted, expired} {
		feeds[u] = u.tap(t, j)
	}

	must(t, y.admin.RevokeToken(t.Context(), revoked.token))
	feeds[revoked].severed(t, "revoked", "token_revoked")

	y.admin.must(t, "users", "disable", "dora")
	feeds[disabled].severed(t, "disabled", "user_disabled")

	y.admin.must(t, "users", "role", "dino", "researcher")
	feeds[demoted].severed(t, "demoted", "access_changed")
	feeds[expired].severed(t, "expired", "token_expired")

	if r := revoked.types(t, "logs", "--follow", string(j)); r.code == 0 || !strings.Contains(r.err, "was revoked") {
		t.Errorf("the command line of a revoked token: %s", &r)
	}

	y.audit(t, "token.revoked", func(e *api.Event) bool { return strings.Contains(e.Reason, string(revoked.token)) })
	y.audit(t, "user.changed", func(e *api.Event) bool { return e.Owner == "dora" && e.Actor == string(y.admin.name) })
}
