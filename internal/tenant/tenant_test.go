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

// TestMay has every role, scope and action, on one's own things, on those of a project that one leads or is a member
// of, and on those of others.
func TestMay(t *testing.T) {
	t.Parallel()

	// For each action: the scopes that suffice, and whose things each role may do it to.
	const read, submit, tokens, admin = "read submit tokens admin", "submit tokens admin", "tokens admin", "admin"
	const every = "own led member others nobody"

	want := map[tenant.Action]struct{ scopes, viewer, researcher, operator string }{
		tenant.Identify:    {read, "own", "own", "own"},
		tenant.ReadJob:     {read, "own led member", "own led", every},
		tenant.ChangeJob:   {submit, "", "own led", "own led"},
		tenant.SubmitJob:   {submit, "", "own", "own"},
		tenant.ReadNodes:   {read, every, every, every},
		tenant.ChangeNodes: {admin, "", "", every},
		tenant.ReadEvents:  {read, "own", "own", every},
		tenant.ManageUsers: {admin, "", "", ""},
		tenant.ReadTokens:  {submit, "own", "own", "own"},
		tenant.OwnTokens:   {tokens, "own", "own", "own"},

		tenant.ReadProjects:   {read, "own led member", "own led member", every},
		tenant.ManageProjects: {admin, "", "", ""},

		tenant.ReadUsage:     {read, "own led member", "own led", every},
		tenant.ReadOffers:    {read, every, every, every},
		tenant.ManageQuotas:  {admin, "", "", ""},
		tenant.ManageLeases:  {admin, "", "", every},
		tenant.ReadData:      {read, every, every, every},
		tenant.ManageData:    {submit, "", "own", "own"},
		tenant.OverridePlace: {admin, "", "", ""},
		tenant.ReadSecrets:   {read, "own led", "own led", "own led"},
		tenant.ManageSecrets: {submit, "", "own led", "own led"},
		tenant.RotateSecrets: {admin, "", "", ""},

		tenant.ReadChannels:   {read, "own led", "own led", "own led"},
		tenant.ManageChannels: {submit, "", "own led", "own led"},
	}

	things := map[string]struct {
		owner   id.User
		project id.Project
	}{
		"own": {"ada", "free"}, "led": {"bob", "vision"}, "member": {"bob", "speech"}, "others": {"bob", "free"}, "nobody": {"", ""},
	}

	for _, a := range tenant.Actions() {
		rule, ok := want[a]
		if !ok {
			t.Errorf("%s is not in this table", a)
		}

		reach := map[tenant.Role]string{
			tenant.Admin: every, tenant.Operator: rule.operator, tenant.Researcher: rule.researcher, tenant.Viewer: rule.viewer,
		}

		for _, role := range append(tenant.Roles(), "", "guest") {
			for _, scope := range append(tenant.Scopes(), "", "root") {
				c := tenant.Caller{
					User: "ada", Role: role, Scope: scope, Leads: []id.Project{"vision"}, Member: []id.Project{"speech", "vision"},
				}
				fits := slices.Contains(strings.Fields(rule.scopes), string(scope))

				for whose, thing := range things {
					allowed := fits && slices.Contains(strings.Fields(reach[role]), whose)
					if got := c.MayIn(a, thing.owner, thing.project); got != allowed {
						t.Errorf("%s with scope %q, %s of %s: %v, want %v", role, scope, a, whose, got, allowed)
					}
				}

				if got, any := c.MayAt(a), fits && reach[role] != ""; got != any {
					t.Errorf("%s with scope %q, %s of anything: %v, want %v", role, scope, a, got, any)
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

func TestTheProjectsThatACallerSees(t *testing.T) {
	t.Parallel()

	for role, want := range map[tenant.Role]string{
		tenant.Viewer: "[speech vision]", tenant.Researcher: "[vision]", tenant.Admin: "[speech vision]",
		tenant.Operator: "[speech vision]",
	} {
		c := tenant.Caller{
			User: "ada", Role: role, Scope: tenant.ScopeRead, Leads: []id.Project{"vision"},
			Member: []id.Project{"speech", "vision"},
		}
		if got := fmt.Sprint(c.Sees(tenant.ReadJob)); got != want {
			t.Errorf("%s sees the jobs of %s, want %s", role, got, want)
		}

		if got := c.Sees(tenant.ChangeJob); got != nil {
			t.Errorf("%s with scope read changes jobs of %v", role, got)
		}
	}
}

func TestTheHighestPriorityOfAUser(t *testing.T) {
	t.Parallel()
	//nolint:exhaustive // others have none
	caps := tenant.Caps{Role: map[tenant.Role]int{tenant.Researcher: 50, tenant.Operator: 90}, Lead: 80}

	for name, tc := range map[string]struct {
		user  tenant.User
		leads bool
		want  string
	}{
		"by role":                     {tenant.User{Role: tenant.Researcher}, false, "50 true"},
		"in a project that one leads": {tenant.User{Role: tenant.Researcher}, true, "80 true"},
		"a lead who has more by role": {tenant.User{Role: tenant.Operator}, true, "90 true"},
		"of their own":                {tenant.User{Role: tenant.Researcher, MaxPriority: new(20)}, true, "20 true"},
		"of a role without":           {tenant.User{Role: tenant.Admin}, false, "0 false"},
	} {
		highest, capped := caps.Of(&tc.user, tc.leads)
		if got := fmt.Sprint(highest, capped); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
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

	want := "read>read submit>read submit>submit tokens>read tokens>submit tokens>tokens " +
		"admin>read admin>submit admin>tokens admin>admin"
	if strings.Join(got, " ") != want {
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
