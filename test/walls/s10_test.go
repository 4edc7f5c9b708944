package walls_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/tenant"
)

// TestS10_TokensDoNotOutliveTheOneThatCreatedThem tries to turn a token that leaked into access for ever.
func TestS10_TokensDoNotOutliveTheOneThatCreatedThem(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	mallory := y.user(t, "mallory")

	// The token of a program cannot create any.
	a := mallory.call(t, http.MethodPost, "/api/v1/tokens", api.TokenRequest{Kind: tenant.AccessToken, TTL: "366d"})
	if a.status != http.StatusForbidden || !strings.Contains(a.problem.Remedy, "scope") {
		t.Errorf("a token of scope submit creates one: %s", &a)
	}

	// What a token creates ends with it: when it expires and when it is revoked.
	leaked, err := y.admin.CreateToken(t.Context(), api.TokenRequest{
		Kind: tenant.AccessToken, Owner: "mallory", Scope: tenant.ScopeTokens, TTL: "1h",
	})
	must(t, err)

	thief := y.login(t, "thief", leaked.Text)
	made, err := thief.CreateToken(t.Context(), api.TokenRequest{
		Kind: tenant.AccessToken, Scope: tenant.ScopeTokens, TTL: "366d",
	})
	must(t, err)

	if made.Expires.After(leaked.Expires) || made.Parent != leaked.ID {
		t.Errorf("a token that ends at %s created one that ends at %s, with %q", leaked.Expires, made.Expires, made.Parent)
	}

	heir := y.login(t, "heir", made.Text)
	y.audit(t, "token.added", func(e *api.Event) bool {
		return e.Actor == "mallory" && strings.Contains(e.Reason, "created with token "+string(leaked.ID))
	})

	// Nor can a researcher get a token for a login, which would stand for itself.
	a = thief.call(t, http.MethodPost, "/api/v1/tokens", api.TokenRequest{Kind: tenant.BootstrapToken})
	if a.status != http.StatusForbidden {
		t.Errorf("a researcher creates a token for a login: %s", &a)
	}

	y.admin.must(t, "tokens", "revoke", string(leaked.ID))

	if a := heir.call(t, http.MethodGet, "/api/v1/whoami", nil); a.status != http.StatusUnauthorized ||
		a.problem.Code != "token_revoked" {
		t.Errorf("a token whose parent was revoked: %s", &a)
	}

	// An admin ends all that somebody has.
	y.admin.must(t, "tokens", "revoke", "--all", "--owner", "mallory")

	if a := mallory.call(t, http.MethodGet, "/api/v1/whoami", nil); a.status != http.StatusUnauthorized {
		t.Errorf("after all tokens were revoked: %s", &a)
	}
}

// TestS10_TheBootstrapTokenIsNotInTheJournal looks for the first admin's token where others could read it.
func TestS10_TheBootstrapTokenIsNotInTheJournal(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	log, err := os.ReadFile(y.ServerLog())
	must(t, err)

	if strings.Contains(string(log), "tyb_") {
		t.Errorf("the server printed its bootstrap token:\n%s", log)
	}

	file := filepath.Join(y.Folder, "server", "bootstrap-token")
	info, err := os.Stat(file)
	must(t, err)

	if info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the bootstrap token: mode %s", info.Mode())
	}

	page, err := y.admin.Tokens(t.Context(), "admin", api.Page{})
	must(t, err)

	for _, k := range page.Tokens {
		if life := k.Expires.Sub(k.Created); k.Kind == tenant.BootstrapToken && life > time.Hour {
			t.Errorf("the bootstrap token is valid for %s", life)
		}
	}
}
