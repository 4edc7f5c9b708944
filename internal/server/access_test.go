package server

import (
	"net/http"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// loggedIn exchanges a bootstrap token of a user.
func (y *yard) loggedIn(user id.User, role tenant.Role, scope tenant.Scope) *api.Client {
	y.t.Helper()
	y.do(yardmaster.PutUser{User: user, Role: role, By: "test"})
	boot := y.newToken(tenant.Token{
		Kind: tenant.BootstrapToken, Owner: user, Scope: scope, UsesLeft: 1, Expires: y.clock.Now().Add(time.Hour),
	})
	given, err := y.client("").Login(y.t.Context(), api.LoginRequest{Token: boot})
	y.must(err)

	return y.client(given.Text)
}

// A token that a token creates ends with it, and no later. Before the fix a token of ten seconds created one of a year,
// which outlived also its revocation.
func TestATokenEndsWithTheOneThatCreatedIt(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.do(yardmaster.PutUser{User: "ada", Role: tenant.Researcher, By: "test"})
	short := tenant.Token{
		Kind: tenant.AccessToken, Owner: "ada", Scope: tenant.ScopeTokens, Expires: y.clock.Now().Add(10 * time.Minute),
	}
	text := y.newToken(short)
	parsed, err := auth.Parse(text)
	y.must(err)

	child, err := y.client(text).CreateToken(t.Context(),
		api.TokenRequest{Kind: tenant.AccessToken, TTL: "366d", Scope: tenant.ScopeTokens})
	y.must(err)

	if child.Parent != parsed.ID || child.Expires.After(short.Expires) {
		t.Errorf("created with %s, ends with %q at %s, want not after %s", parsed.ID, child.Parent, child.Expires,
			short.Expires)
	}

	grandchild, err := y.client(child.Text).CreateToken(t.Context(),
		api.TokenRequest{Kind: tenant.AccessToken, Scope: tenant.ScopeRead})
	y.must(err)
	_, err = y.client(grandchild.Text).Whoami(t.Context())
	y.must(err)

	y.must(y.client(text).RevokeToken(t.Context(), parsed.ID))

	for _, c := range []string{text, child.Text, grandchild.Text} {
		_, err = y.client(c).Whoami(t.Context())
		wantFault(t, err, fault.Unknown, "token_revoked")
	}
}

func TestTokensFromAFreshLoginStandForThemselves(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.loggedIn("ada", tenant.Researcher, tenant.ScopeTokens)
	whole, err := ada.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.AccessToken, TTL: "366d"})
	y.must(err)

	if year := y.clock.Now().Add(365 * 24 * time.Hour); whole.Parent != "" || whole.Expires.Before(year) {
		t.Errorf("from a fresh login: ends with %q at %s", whole.Parent, whole.Expires)
	}

	y.advance(tenant.FreshLogin)

	bound, err := ada.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.AccessToken, TTL: "366d"})
	y.must(err)

	if bound.Parent == "" || !bound.Expires.Before(whole.Expires) {
		t.Errorf("later: ends with %q at %s", bound.Parent, bound.Expires)
	}
}

func TestCreatingTokensNeedsAScopeOfItsOwn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	_, err := ada.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.AccessToken})
	wantFault(t, err, fault.Denied, "not_allowed")

	who, err := ada.Whoami(t.Context())
	y.must(err)
	y.must(ada.RevokeToken(t.Context(), who.Token)) // a login can always be ended

	_, err = ada.Whoami(t.Context())
	wantFault(t, err, fault.Unknown, "token_revoked")
}

// An admin makes a token for the login of another person; what that is exchanged for belongs to the person alone.
func TestAPersonLogsInWithATokenThatAnAdminMade(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.do(yardmaster.PutUser{User: "ada", Role: tenant.Researcher, By: "test"})
	root := y.admin()
	_, err := y.client(y.token("bob", tenant.Researcher, tenant.ScopeAdmin)).
		CreateToken(t.Context(), api.TokenRequest{Kind: tenant.BootstrapToken})
	wantFault(t, err, fault.Denied, "not_allowed")

	boot, err := root.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.BootstrapToken, Owner: "ada"})
	y.must(err)

	given, err := y.client("").Login(t.Context(), api.LoginRequest{Token: boot.Text})
	y.must(err)

	if given.Owner != "ada" || given.Scope != tenant.ScopeTokens || given.Parent != "" {
		t.Errorf("logged in with %+v", given.Token)
	}

	_, err = y.client("").Login(t.Context(), api.LoginRequest{Token: boot.Text})
	wantFault(t, err, fault.Unknown, "token_used_up")
}

func TestAllTokensOfAUserAreRevoked(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	mine, other := y.client(y.token("ada", tenant.Researcher, tenant.ScopeTokens)), y.researcher("ada")
	bob := y.researcher("bob")

	done, err := mine.RevokeTokens(t.Context(), "")
	y.must(err)

	if done.Revoked != 1 {
		t.Errorf("%d tokens revoked, want 1", done.Revoked)
	}

	_, err = other.Whoami(t.Context())
	wantFault(t, err, fault.Unknown, "token_revoked")
	_, err = mine.RevokeTokens(t.Context(), "bob")
	wantFault(t, err, fault.Denied, "not_allowed")
	_, err = y.admin().RevokeTokens(t.Context(), "nobody")
	wantFault(t, err, fault.NotFound, "user_not_found")

	_, err = y.admin().RevokeTokens(t.Context(), "bob")
	y.must(err)
	_, err = bob.Whoami(t.Context())
	wantFault(t, err, fault.Unknown, "token_revoked")
}

// Nobody uses up the quota of a project that they are not a member of.
func TestAProjectIsForItsMembers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob, root := y.researcher("ada"), y.researcher("bob"), y.admin()
	y.submit(ada, "run: a\nproject: vision") // a label, until there is a quota
	_, err := root.PutQuota(t.Context(), "project/vision", api.QuotaRequest{GPUs: 1})
	y.must(err)

	y.submit(ada, "run: b\nproject: vision") // the owners of its jobs are its members
	y.submit(bob, "run: c\nproject: other")

	for _, dry := range []bool{true, false} {
		_, err = bob.Submit(t.Context(), api.SubmitRequest{File: "run: d\nproject: vision", DryRun: dry}, "")
		wantFault(t, err, fault.Denied, "not_a_member")
	}

	wantFault(t, root.RemoveProject(t.Context(), "vision"), fault.Conflict, "project_has_quota")

	_, err = root.PutMember(t.Context(), "vision", "bob", api.MemberRequest{Lead: true})
	y.must(err)
	y.submit(bob, "run: d\nproject: vision")

	// A lead reads and changes the jobs of the project, and no others.
	page, err := bob.Jobs(t.Context(), api.JobFilter{})
	y.must(err)

	if len(page.Jobs) != 4 {
		t.Errorf("the lead sees %d jobs, want their two and the two of the project", len(page.Jobs))
	}

	_, err = bob.CancelJob(t.Context(), "j2")
	y.must(err)
	y.submit(ada, "run: e")
	_, err = bob.CancelJob(t.Context(), "j5")
	wantFault(t, err, fault.NotFound, "job_not_found")

	events := y.raw(y.http, http.MethodGet, "/api/v1/events?job=j2", y.token("lea", tenant.Researcher,
		tenant.ScopeRead), "")
	if string(events.body) != `{"events":[],"next":"0"}`+"\n" {
		t.Errorf("a stranger sees the events of j2: %s", events.body)
	}
}

func TestPrioritiesAreCapped(t *testing.T) {
	t.Parallel()
	caps := tenant.Caps{Role: map[tenant.Role]int{tenant.Researcher: 50}, Lead: 80} //nolint:exhaustive // others have none
	y := newYard(t, withYard(func(c *yardmaster.Config) { c.Caps = caps }))
	ada, root := y.researcher("ada"), y.admin()
	y.submit(ada, "run: a\npriority: 50")
	y.submit(root, "run: a\npriority: 100")

	_, err := ada.Submit(t.Context(), api.SubmitRequest{File: "run: a\npriority: 51"}, "")
	wantFault(t, err, fault.Denied, "priority_too_high")

	_, err = root.PutUser(t.Context(), "ada", api.UserRequest{Role: tenant.Researcher, MaxPriority: new(70)})
	y.must(err)
	y.submit(ada, "run: a\npriority: 70")

	_, err = root.PutUser(t.Context(), "ada", api.UserRequest{Role: tenant.Researcher}) // as it was
	y.must(err)
	y.submit(ada, "run: a\npriority: 70")

	user, err := root.PutUser(t.Context(), "ada", api.UserRequest{Role: tenant.Researcher, MaxPriority: new(-1)})
	y.must(err)

	_, err = ada.Submit(t.Context(), api.SubmitRequest{File: "run: a\npriority: 70"}, "")
	wantFault(t, err, fault.Denied, "priority_too_high")

	if user.MaxPriority != nil {
		t.Errorf("the cap is still %d", *user.MaxPriority)
	}
}
