package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/tenant"
)

// browser is somebody who is signed in with a cookie.
type browser struct {
	y      *yard
	cookie string
}

// signIn signs a browser in, and returns it with the answer.
func (y *yard) signIn(body string, headers ...string) (*browser, reply) {
	y.t.Helper()
	got := y.raw(y.http, http.MethodPost, "/api/v1/session", "", body, headers...)
	cookie, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")

	return &browser{y: y, cookie: cookie}, got
}

// ask sends a request as a browser does that a page of the portal is open in.
func (b *browser) ask(method, path string, headers ...string) reply {
	b.y.t.Helper()

	return b.y.raw(b.y.http, method, path, "", "", append([]string{"Cookie: " + b.cookie}, headers...)...)
}

func TestABrowserSignsInWithATokenAndOut(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)

	ada, got := y.signIn(`{"token":"` + token + `"}`)
	if got.status != http.StatusOK {
		t.Fatalf("signing in: %d %s", got.status, got.body)
	}

	set := got.header.Get("Set-Cookie")
	for _, want := range []string{"; HttpOnly", "; Secure", "; SameSite=Strict", "; Max-Age=", "trainyard-" + y.ca.Hash()[:16] + "="} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie %s has no %s", set, want)
		}
	}

	if strings.Contains(set, "Path=") {
		t.Errorf("the cookie %s has a path, so that it does not work behind a proxy", set)
	}

	var who api.Whoami
	y.must(json.Unmarshal(ada.ask(http.MethodGet, "/api/v1/whoami").body, &who))
	if who.User != "ada" || who.Scope != tenant.ScopeSubmit {
		t.Errorf("the session is one of %s with scope %s", who.User, who.Scope)
	}

	got = ada.ask(http.MethodDelete, "/api/v1/session")
	if got.status != http.StatusOK || !strings.Contains(got.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("signing out: %d %s, cookie %q", got.status, got.body, got.header.Get("Set-Cookie"))
	}

	if got := ada.ask(http.MethodGet, "/api/v1/whoami"); got.status != http.StatusUnauthorized {
		t.Errorf("after signing out: %d %s", got.status, got.body)
	}
}

func TestASessionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeRead)
	ada, _ := y.signIn(`{"token":"` + token + `"}`)
	parsed, err := auth.Parse(token)
	y.must(err)
	y.must(y.client(token).RevokeToken(t.Context(), parsed.ID))

	if got := ada.ask(http.MethodGet, "/api/v1/whoami"); got.status != http.StatusUnauthorized {
		t.Errorf("after the token was revoked: %d %s", got.status, got.body)
	}

	if _, got := y.signIn(`{"token":"` + token + `"}`); got.status != http.StatusUnauthorized {
		t.Errorf("signing in with a revoked token: %d %s", got.status, got.body)
	}
}

func TestSigningOutEverywhereEndsSessionsAndNoOtherToken(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	here, _ := y.signIn(`{"token":"` + token + `"}`)
	there, _ := y.signIn(`{"token":"` + token + `"}`)
	bob, _ := y.signIn(`{"token":"` + y.token("bob", tenant.Researcher, tenant.ScopeRead) + `"}`)

	var ended api.RevokedTokens
	y.must(json.Unmarshal(here.ask(http.MethodDelete, "/api/v1/sessions").body, &ended))
	if ended.Revoked != 2 {
		t.Errorf("%d sessions ended", ended.Revoked)
	}

	for _, b := range []*browser{here, there} {
		if got := b.ask(http.MethodGet, "/api/v1/whoami"); got.status != http.StatusUnauthorized {
			t.Errorf("after signing out everywhere: %d %s", got.status, got.body)
		}
	}

	if got := bob.ask(http.MethodGet, "/api/v1/whoami"); got.status != http.StatusOK {
		t.Errorf("bob is signed out too: %d %s", got.status, got.body)
	}

	if _, err := y.client(token).Whoami(t.Context()); err != nil {
		t.Errorf("the token ended with its sessions: %v", err)
	}
}

// Browsers send cookies whoever made them send the request; what other sites can make them send changes nothing.
func TestOtherSitesCannotUseASession(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	ada, _ := y.signIn(`{"token":"` + token + `"}`)
	y.submit(y.client(token), "run: a")

	for _, from := range [][]string{
		{"Sec-Fetch-Site: cross-site"},
		{"Sec-Fetch-Site: same-site"}, // another port of the same host
		{"Origin: https://evil.example.org"},
	} {
		if got := ada.ask(http.MethodPost, "/api/v1/jobs/j1/cancel", from...); got.status != http.StatusForbidden {
			t.Errorf("%v: %d %s", from, got.status, got.body)
		}

		if _, got := y.signIn(`{"token":"`+token+`"}`, from...); got.status != http.StatusForbidden {
			t.Errorf("%v signs a browser in: %d %s", from, got.status, got.body)
		}
	}

	if got := ada.ask(http.MethodPost, "/api/v1/jobs/j1/cancel", "Sec-Fetch-Site: same-origin"); got.status != http.StatusOK {
		t.Errorf("the portal itself: %d %s", got.status, got.body)
	}
}

func TestASessionIsOnlyAcceptedInItsCookie(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	ada, _ := y.signIn(`{"token":"` + token + `"}`)
	name, session, _ := strings.Cut(ada.cookie, "=")

	if got := y.raw(y.http, http.MethodGet, "/api/v1/whoami", session, ""); got.status != http.StatusUnauthorized {
		t.Errorf("a session as a bearer token: %d %s", got.status, got.body)
	}

	if _, got := y.signIn(`{"token":"` + session + `"}`); got.status != http.StatusUnauthorized {
		t.Errorf("a session that begins another: %d %s", got.status, got.body)
	}

	ada.cookie = name + "=" + token
	if got := ada.ask(http.MethodGet, "/api/v1/whoami"); got.status != http.StatusUnauthorized {
		t.Errorf("an access token in a cookie: %d %s", got.status, got.body)
	}

	if got := y.raw(y.http, http.MethodDelete, "/api/v1/session", token, ""); got.status != http.StatusConflict {
		t.Errorf("signing out without a session: %d %s", got.status, got.body)
	}
}

func TestALinkSignsInOnceAndNotForLong(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.token("ada", tenant.Admin, tenant.ScopeRead)

	code := y.srv.Codes.New("ada")
	ada, got := y.signIn(`{"code":"` + code + `"}`)
	if got.status != http.StatusOK {
		t.Fatalf("the link: %d %s", got.status, got.body)
	}

	if got := ada.ask(http.MethodGet, "/api/v1/users"); got.status != http.StatusOK {
		t.Errorf("the owner of the yard cannot list users: %d %s", got.status, got.body)
	}

	if _, got := y.signIn(`{"code":"` + code + `"}`); got.status != http.StatusUnauthorized {
		t.Errorf("a second time: %d %s", got.status, got.body)
	}

	late := y.srv.Codes.New("ada")
	y.advance(CodeLife + time.Second)
	if _, got := y.signIn(`{"code":"` + late + `"}`); got.status != http.StatusUnauthorized {
		t.Errorf("too late: %d %s", got.status, got.body)
	}

	// Through a proxy, or from another machine: such a code is spent as well.
	elsewhere := y.srv.Codes.New("ada")
	for _, headers := range [][]string{{"X-Forwarded-For: 192.0.2.7"}, nil} {
		if _, got := y.signIn(`{"code":"`+elsewhere+`"}`, headers...); got.status != http.StatusUnauthorized {
			t.Errorf("from elsewhere, with %v: %d %s", headers, got.status, got.body)
		}
	}
}

func TestSessionsAreInTheAuditRecord(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, _ := y.signIn(`{"token":"` + y.token("ada", tenant.Researcher, tenant.ScopeSubmit) + `"}`)
	ada.ask(http.MethodDelete, "/api/v1/session")

	added, revoked := y.events("token.added"), y.events("token.revoked")
	last := added[len(added)-1]
	if last.Actor != "ada" || last.Address == "" || !strings.Contains(last.To, "session of a browser") {
		t.Errorf("signing in: %+v", last)
	}

	if len(revoked) != 1 || revoked[0].Actor != "ada" || revoked[0].Address == "" {
		t.Errorf("signing out: %+v", revoked)
	}
}

func TestPagesAreServedToBrowsersAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	for _, path := range []string{"/", "/jobs", "/jobs/j1?tab=logs"} {
		got := y.raw(y.http, http.MethodGet, path, "", "", "Accept: text/html")
		if got.status != http.StatusOK || !strings.Contains(string(got.body), "built without the portal") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}

	for _, path := range []string{"/api/v1/nothing", "/assets/nothing.js"} {
		if got := y.raw(y.http, http.MethodGet, path, "", "", "Accept: text/html"); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}
