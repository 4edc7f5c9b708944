package auth_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

func TestTheDirectoryKnowsWhoPresentsAToken(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := mint(t, tenant.AccessToken)
	d := auth.NewDirectory()
	_, _, err := d.Authenticate(s.Text, now)
	wantFault(t, err, fault.Unknown, "token_invalid")
	d.Set([]tenant.User{{ID: "ada", Role: tenant.Researcher}}, []tenant.Token{record(s, tenant.AccessToken, now)}, nil)

	caller, token, err := d.Authenticate(s.Text, now)
	if err != nil {
		t.Fatal(err)
	}

	if want := (tenant.Caller{User: "ada", Role: tenant.Researcher, Scope: tenant.ScopeSubmit}); !caller.Equal(want) ||
		token != s.ID {
		t.Errorf("caller = %+v with token %s, want %+v with %s", caller, token, want, s.ID)
	}

	d.Set(nil, nil, nil)
	_, _, err = d.Authenticate(s.Text, now)
	wantFault(t, err, fault.Unknown, "token_invalid")
}

func TestTheDirectoryRefuses(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	access := mint(t, tenant.AccessToken)
	boot := mint(t, tenant.BootstrapToken)
	join := mint(t, tenant.JoinToken)
	tests := []struct {
		name   string
		change func(*tenant.User, *tenant.Token)
		bearer string
		kind   fault.Kind
		code   string
	}{
		{"no token", nil, "", fault.Unknown, "token_malformed"},
		{"a header that was not cut", nil, "Bearer " + access.Text, fault.Unknown, "token_malformed"},
		{"a changed secret", nil, flip(access.Text), fault.Unknown, "token_invalid"},
		{"somebody else's token", nil, mint(t, tenant.AccessToken).Text, fault.Unknown, "token_invalid"},
		{"a bootstrap token", nil, boot.Text, fault.Unknown, "token_wrong_kind"},
		{"a join token", nil, join.Text, fault.Unknown, "token_wrong_kind"},
		{
			"a disabled user",
			func(u *tenant.User, _ *tenant.Token) { u.Disabled = true },
			access.Text,
			fault.Denied,
			"user_disabled",
		},
		{
			"an unknown owner",
			func(_ *tenant.User, t *tenant.Token) { t.Owner = "bob" },
			access.Text,
			fault.Unknown,
			"token_invalid",
		},
		{
			"an expired token",
			func(_ *tenant.User, t *tenant.Token) { t.Expires = now },
			access.Text,
			fault.Unknown,
			"token_expired",
		},
		{
			"a revoked token",
			func(_ *tenant.User, t *tenant.Token) { t.Revoked = true },
			access.Text,
			fault.Unknown,
			"token_revoked",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, rec := tenant.User{ID: "ada", Role: tenant.Admin}, record(access, tenant.AccessToken, now)
			if tt.change != nil {
				tt.change(&u, &rec)
			}

			d := auth.NewDirectory()
			d.PutUser(u)

			for _, r := range []tenant.Token{rec, record(boot, tenant.BootstrapToken, now),
				record(join, tenant.JoinToken, now)} {
				d.PutToken(r)
			}

			caller, token, err := d.Authenticate(tt.bearer, now)
			wantFault(t, err, tt.kind, tt.code)

			if !caller.Equal(tenant.Caller{}) || token != "" {
				t.Errorf("caller = %+v all the same", caller)
			}
		})
	}
}

func TestTheDirectoryChecksJoinAndBootstrapTokens(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

	for _, kind := range []tenant.TokenKind{tenant.BootstrapToken, tenant.JoinToken} {
		s := mint(t, kind)
		rec := record(s, kind, now)
		rec.Class, rec.Pool = "local", "lab"
		d := auth.NewDirectory() // knows no user: such tokens need no owner
		d.PutToken(rec)

		if got, err := d.Check(kind, s.Text, now); err != nil || got != rec {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}

		_, err := d.Check(kind, mint(t, tenant.AccessToken).Text, now)
		wantFault(t, err, fault.Unknown, "token_wrong_kind")
		rec.Seq, rec.UsesLeft = rec.Seq+1, 0
		d.PutToken(rec)
		_, err = d.Check(kind, s.Text, now)
		wantFault(t, err, fault.Unknown, "token_used_up")
	}
}

func TestALateUpdateBringsNothingBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := mint(t, tenant.AccessToken)
	good := record(s, tenant.AccessToken, now)
	revoked := good
	revoked.Seq, revoked.Revoked = good.Seq+1, true
	active := tenant.User{ID: "ada", Seq: 1, Role: tenant.Admin}
	disabled := active
	disabled.Seq, disabled.Disabled = 2, true

	d := auth.NewDirectory()
	d.Set([]tenant.User{active}, []tenant.Token{good}, nil)
	d.PutToken(revoked)
	d.PutToken(good)
	_, _, err := d.Authenticate(s.Text, now)
	wantFault(t, err, fault.Unknown, "token_revoked")

	d.Set([]tenant.User{active}, []tenant.Token{good}, nil)
	d.PutUser(disabled)
	d.PutUser(active)
	_, _, err = d.Authenticate(s.Text, now)
	wantFault(t, err, fault.Denied, "user_disabled")
}

// family is a directory with a token of root and one of ada that was created with it.
func family(now time.Time) (*auth.Directory, tenant.Token, tenant.Token) {
	parent := tenant.Token{
		ID: "parent", Seq: 1, Kind: tenant.AccessToken, Owner: "root", Scope: tenant.ScopeAdmin, Expires: now.Add(time.Hour),
	}
	child := tenant.Token{
		ID: "child", Seq: 1, Kind: tenant.AccessToken, Owner: "ada", Scope: tenant.ScopeSubmit, Expires: now.Add(time.Hour),
		Parent: "parent",
	}

	d := auth.NewDirectory()
	d.Set([]tenant.User{{ID: "ada", Seq: 1, Role: tenant.Researcher}, {ID: "root", Seq: 1, Role: tenant.Admin}},
		[]tenant.Token{parent, child}, nil)

	return d, parent, child
}

func TestATokenEndsWithTheOneItWasCreatedWith(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

	for name, end := range map[string]func(*auth.Directory, tenant.Token){
		"revoked":  func(d *auth.Directory, p tenant.Token) { p.Seq, p.Revoked = 2, true; d.PutToken(p) },
		"expired":  func(d *auth.Directory, p tenant.Token) { p.Seq, p.Expires = 2, now; d.PutToken(p) },
		"disabled": func(d *auth.Directory, _ tenant.Token) { d.PutUser(tenant.User{ID: "root", Seq: 2, Disabled: true}) },
		"a circle": func(d *auth.Directory, p tenant.Token) { p.Seq, p.Parent = 2, "child"; d.PutToken(p) },
	} {
		d, parent, child := family(now)
		if _, _, err := d.Recheck(child.ID, now); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}

		end(d, parent)

		_, _, err := d.Recheck(child.ID, now)
		wantFault(t, err, fault.Unknown, "token_revoked")
	}
}

func TestThoseWhoseAccessChangesAreWoken(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

	for name, tc := range map[string]struct {
		change func(*auth.Directory, tenant.Token)
		want   bool
	}{
		"revoked":  {func(d *auth.Directory, p tenant.Token) { p.Seq, p.Revoked = 2, true; d.PutToken(p) }, true},
		"disabled": {func(d *auth.Directory, _ tenant.Token) { d.PutUser(tenant.User{ID: "ada", Seq: 2, Disabled: true}) }, true},
		"a new role": {func(d *auth.Directory, _ tenant.Token) {
			d.PutUser(tenant.User{ID: "ada", Seq: 2, Role: tenant.Viewer})
		}, true},
		"a new lead": {func(d *auth.Directory, _ tenant.Token) {
			d.PutMember(tenant.Member{Project: "p", User: "ada", Lead: true})
		}, true},
		"more usage": {func(d *auth.Directory, _ tenant.Token) {
			d.PutUser(tenant.User{ID: "ada", Seq: 2, Role: tenant.Researcher, Usage: 7})
		}, false},
		"a new token": {func(d *auth.Directory, p tenant.Token) { p.ID = "other"; d.PutToken(p) }, false},
	} {
		d, parent, _ := family(now)
		changed := d.Changed()
		tc.change(d, parent)

		select {
		case <-changed:
			if !tc.want {
				t.Errorf("%s: woken for nothing", name)
			}
		default:
			if tc.want {
				t.Errorf("%s: not woken", name)
			}
		}
	}
}

func TestACallerHasTheirProjects(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	d, _, child := family(now)
	d.PutMember(tenant.Member{Project: "vision", User: "ada", Seq: 1, Lead: true})
	d.PutMember(tenant.Member{Project: "speech", User: "ada", Seq: 3})
	d.PutMember(tenant.Member{Project: "speech", User: "ada", Seq: 2, Removed: true}) // late
	d.PutMember(tenant.Member{Project: "text", User: "bob", Seq: 1})

	c, _, err := d.Recheck(child.ID, now)
	if err != nil || !slices.Equal(c.Member, []id.Project{"speech", "vision"}) || !slices.Equal(c.Leads,
		[]id.Project{"vision"}) {
		t.Errorf("member of %v, leads %v: %v", c.Member, c.Leads, err)
	}

	d.PutMember(tenant.Member{Project: "vision", User: "ada", Seq: 2, Removed: true})

	c, _, err = d.Recheck(child.ID, now)
	if err != nil || !slices.Equal(c.Member, []id.Project{"speech"}) || len(c.Leads) > 0 {
		t.Errorf("after leaving: member of %v, leads %v: %v", c.Member, c.Leads, err)
	}
}

func TestTheDirectoryMayBeUsedFromManySides(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := mint(t, tenant.AccessToken)
	users, tokens := []tenant.User{{ID: "ada", Role: tenant.Admin}}, []tenant.Token{record(s, tenant.AccessToken, now)}
	d := auth.NewDirectory()
	d.Set(users, tokens, nil)

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if _, _, err := d.Authenticate(s.Text, now); err != nil {
					t.Error(err)
					return
				}
			}
		})

		wg.Go(func() {
			for range 100 {
				d.PutUser(users[0])
				d.PutToken(tokens[0])
				d.Set(users, tokens, nil)
			}
		})
	}

	wg.Wait()
}

func BenchmarkAuthenticate(b *testing.B) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := mint(b, tenant.AccessToken)
	d := auth.NewDirectory()
	d.Set([]tenant.User{{ID: "ada", Role: tenant.Admin}}, []tenant.Token{record(s, tenant.AccessToken, now)}, nil)
	b.ReportAllocs()

	for b.Loop() {
		if _, _, err := d.Authenticate(s.Text, now); err != nil {
			b.Fatal(err)
		}
	}
}
