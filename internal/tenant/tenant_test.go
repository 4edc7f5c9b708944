package tenant_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// TestMay has every role, scope and action, on one's own things and on those of others.
func TestMay(t *testing.T) {
	t.Parallel()

	// For each action: the scopes that suffice, and whether a researcher may do it to own and to others' things.
	want := map[tenant.Action]struct{ scopes, researcher string }{
		tenant.ReadJob:     {"read submit admin", "own"},
		tenant.ChangeJob:   {"submit admin", "own"},
		tenant.SubmitJob:   {"submit admin", "own"},
		tenant.ReadNodes:   {"read submit admin", "own others nobody"},
		tenant.ChangeNodes: {"admin", ""},
		tenant.ReadEvents:  {"read submit admin", "own"},
		tenant.ManageUsers: {"admin", ""},
		tenant.OwnTokens:   {"submit admin", "own"},

		tenant.ReadUsage:     {"read submit admin", "own"},
		tenant.ReadOffers:    {"read submit admin", "own others nobody"},
		tenant.ManageQuotas:  {"admin", ""},
		tenant.ManageLeases:  {"admin", ""},
		tenant.ReadData:      {"read submit admin", "own others nobody"},
		tenant.ManageData:    {"submit admin", "own"},
		tenant.OverridePlace: {"admin", ""},
	}

	owners := map[string]id.User{"own": "ada", "others": "bob", "nobody": ""}
	for _, a := range tenant.Actions() {
		rule, ok := want[a]
		if !ok {
			t.Errorf("%s is not in this table", a)
		}

		for _, role := range append(tenant.Roles(), "", "guest") {
			for _, scope := range append(tenant.Scopes(), "", "root") {
				for whose, owner := range owners {
					c := tenant.Caller{User: "ada", Role: role, Scope: scope}
					allowed := slices.Contains(strings.Fields(rule.scopes), string(scope)) &&
						(role == tenant.Admin || role == tenant.Researcher && slices.Contains(strings.Fields(rule.researcher), whose))
					if got := c.May(a, owner); got != allowed {
						t.Errorf("%s with scope %q, %s of %s: %v, want %v", role, scope, a, whose, got, allowed)
					}
				}
			}
		}
	}

	if (tenant.Caller{User: "ada", Role: tenant.Admin, Scope: tenant.ScopeAdmin}).May("fly", "ada") {
		t.Error("an admin may do what is no action")
	}

	if len(want) != len(tenant.Actions()) {
		t.Errorf("%d actions are listed, want %d", len(tenant.Actions()), len(want))
	}
}

func TestScopesIncludeNarrowerOnes(t *testing.T) {
	t.Parallel()
	var got []string
	for _, s := range append(tenant.Scopes(), "x") {
		for _, w := range append(tenant.Scopes(), "x") {
			if s.Includes(w) {
				got = append(got, fmt.Sprintf("%s>%s", s, w))
			}
		}
	}

	if want := "read>read submit>read submit>submit admin>read admin>submit admin>admin"; strings.Join(got, " ") != want {
		t.Errorf("scopes include: %v, want %s", got, want)
	}
}

func TestTokenIsUsableUntil(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		token tenant.Token
		want  bool
	}{
		"access":                 {tenant.Token{Kind: tenant.AccessToken, Expires: now.Add(1)}, true},
		"access, at its end":     {tenant.Token{Kind: tenant.AccessToken, Expires: now}, false},
		"access, without an end": {tenant.Token{Kind: tenant.AccessToken}, false},
		"access, revoked":        {tenant.Token{Kind: tenant.AccessToken, Expires: now.Add(1), Revoked: true}, false},
		"join":                   {tenant.Token{Kind: tenant.JoinToken, Expires: now.Add(1), UsesLeft: 1}, true},
		"join, used up":          {tenant.Token{Kind: tenant.JoinToken, Expires: now.Add(1)}, false},
		"join, expired":          {tenant.Token{Kind: tenant.JoinToken, Expires: now.Add(-1), UsesLeft: 1}, false},
		"bootstrap":              {tenant.Token{Kind: tenant.BootstrapToken, Expires: now.Add(1), UsesLeft: 1}, true},
		"bootstrap, used":        {tenant.Token{Kind: tenant.BootstrapToken, Expires: now.Add(1)}, false},
	} {
		if got := tc.token.Usable(now); got != tc.want {
			t.Errorf("%s: usable %v, want %v", name, got, tc.want)
		}
	}
}
