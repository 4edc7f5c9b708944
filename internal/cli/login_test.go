package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/cli/exit"
	"trainyard/internal/tenant"
)

// open is a yard that lets ada in.
func openYard(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.answer("GET /api/v1/whoami", api.Whoami{User: "ada", Role: tenant.Admin, Scope: tenant.ScopeAdmin, Expires: now})
	y.answer("POST /api/v1/login", api.NewToken{Token: api.Token{ID: "x"}, Text: accessToken(t)})
	y.answer("GET /api/v1/jobs", api.JobPage{})

	return y
}

func TestLoginWithABootstrapTokenPinsAndKeepsTheLogin(t *testing.T) {
	t.Parallel()
	y, p := openYard(t), newPerson(t)
	bootstrap := mint(t, tenant.BootstrapToken, y.ca.Hash())
	if code := p.types(t.Context(), "login", y.URL, "--token", bootstrap, "--name", "lab"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	body, head := y.sent("POST /api/v1/login")

	var request api.LoginRequest
	if err := json.Unmarshal(body, &request); err != nil || request.Token != bootstrap {
		t.Errorf("login sent %s (%v)", body, err)
	}

	if head.Get("Authorization") != "" {
		t.Error("login sent a bearer token")
	}

	file, err := contexts.Load(p.env.ConfigDir)
	if err != nil {
		t.Fatal(err)
	}

	want := contexts.Context{Name: "lab", Server: y.URL, User: "ada", Token: accessToken(t), CA: string(y.ca.PEM())}
	if got, _ := file.Get(""); !reflect.DeepEqual(got, want) {
		t.Errorf("kept %+v, want %+v", got, want)
	}

	info, err := os.Stat(file.Path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v (%v)", info.Mode(), err)
	}

	if strings.Contains(p.stdout.String()+p.stderr.String(), "ty_") {
		t.Error("the token was shown")
	}

	if code := p.types(t.Context(), "jobs"); code != exit.OK {
		t.Errorf("jobs after login: exit code %d: %s", code, p.stderr)
	}

	if _, head := y.sent("GET /api/v1/jobs"); head.Get("Authorization") != "Bearer "+accessToken(t) {
		t.Errorf("jobs sent %q", head.Get("Authorization"))
	}
}

func TestLoginRefusesAYardThatNothingVouchesFor(t *testing.T) {
	t.Parallel()
	y, other := openYard(t), openYard(t)
	access := accessToken(t)
	tests := []struct {
		name     string
		args     []string
		terminal bool
		stdin    string
		message  string
	}{
		{
			"the token's hash is another yard's",
			[]string{"--token", mint(t, tenant.BootstrapToken, other.ca.Hash())},
			false,
			"",
			"this may be another server or a man-in-the-middle attack",
		},
		{
			"the flag's hash is another yard's",
			[]string{"--token", access, "--ca-hash", other.ca.Hash()},
			false,
			"",
			"this may be another server",
		},
		{
			"flag and token differ",
			[]string{"--token", mint(t, tenant.BootstrapToken, y.ca.Hash()), "--ca-hash", other.ca.Hash()},
			false,
			"",
			"the token belongs to a server with CA",
		},
		{"nobody can be asked", []string{"--token", access}, false, "", "--ca-hash " + y.ca.Hash()},
		{"the person says no", []string{"--token", access}, true, "\n", "not accepted"},
		{"a join token", []string{"--token", mint(t, tenant.JoinToken, y.ca.Hash())}, false, "", "this is a join token"},
		{"half a token", []string{"--token", access[:30]}, false, "", "copy the complete token"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t)
			p.terminal, p.env.Stdin = tt.terminal, strings.NewReader(tt.stdin)
			code := p.types(t.Context(), append([]string{"login", y.URL}, tt.args...)...)
			if code != exit.Denied && code != exit.Refused {
				t.Errorf("exit code %d", code)
			}

			if !strings.Contains(p.stderr.String(), tt.message) {
				t.Errorf("stderr %q lacks %q", p.stderr, tt.message)
			}

			if _, err := os.Stat(filepath.Join(p.env.ConfigDir, "config.yaml")); err == nil {
				t.Error("a login was kept")
			}
		})
	}

	t.Cleanup(func() {
		if calls := y.called(); len(calls) > 0 {
			t.Errorf("something was sent to the yard: %v", calls)
		}
	})
}

func TestLoginAsksAboutTheCAAndForTheToken(t *testing.T) {
	t.Parallel()
	y, p := openYard(t), newPerson(t)
	p.terminal, p.env.Stdin = true, strings.NewReader("y\n")
	p.env.ReadSecret = func(context.Context) (string, error) { return accessToken(t), nil }
	if code := p.types(t.Context(), "login", y.URL); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	for _, want := range []string{"Token: ", y.ca.Hash(), "Is it the same?", "Next:"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("stderr lacks %q: %s", want, p.stderr)
		}
	}

	// The second login to the same yard needs no question, one to an impostor at its address is refused.
	p.terminal = false
	if code := p.types(t.Context(), "login", y.URL, "--token", accessToken(t)); code != exit.OK {
		t.Errorf("second login: exit code %d: %s", code, p.stderr)
	}

	file, err := contexts.Load(p.env.ConfigDir)
	if err != nil {
		t.Fatal(err)
	}

	known, _ := file.Get("")
	known.CA = string(newYard(t).ca.PEM())
	file.Put(known)

	if err := file.Save(); err != nil {
		t.Fatal(err)
	}

	if code := p.types(t.Context(), "login", y.URL, "--token", accessToken(t)); code != exit.Denied ||
		!strings.Contains(p.stderr.String(), "a different CA than at the last login") {
		t.Errorf("impostor: exit code %d: %s", code, p.stderr)
	}

	if code := p.types(t.Context(), "jobs"); code != exit.Denied ||
		!strings.Contains(p.stderr.String(), "not the server you logged in to") {
		t.Errorf("call to impostor: exit code %d: %s", code, p.stderr)
	}
}

func TestContextsAreChosenByFlagEnvironmentAndFile(t *testing.T) {
	t.Parallel()
	one, two := openYard(t), openYard(t)
	p := newPerson(t)
	file, err := contexts.Load(p.env.ConfigDir)
	if err != nil {
		t.Fatal(err)
	}

	for name, y := range map[string]*yard{"one": one, "two": two} {
		file.Put(contexts.Context{Name: name, Server: y.URL, User: "ada", Token: "ty_" + name, CA: string(y.ca.PEM())})
	}

	file.Current = "one"
	if err := file.Save(); err != nil {
		t.Fatal(err)
	}

	bearer := func(y *yard) string {
		_, head := y.sent("GET /api/v1/jobs")
		return head.Get("Authorization")
	}

	run := func(args ...string) {
		t.Helper()

		if code := p.types(t.Context(), args...); code != exit.OK {
			t.Fatalf("%v: exit code %d: %s", args, code, p.stderr)
		}
	}

	run("jobs", "--all")
	run("jobs", "--all", "--context", "two")

	if diff := cmp.Diff([]string{"Bearer ty_one", "Bearer ty_two"}, []string{bearer(one), bearer(two)}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	p.vars[contexts.VarServer], p.vars[contexts.VarToken] = two.URL, "ty_env"
	run("jobs", "--all")

	if got := bearer(two); got != "Bearer ty_env" {
		t.Errorf("the environment's token was not used: %q", got)
	}

	run("jobs", "--all", "--context", "one")

	if got := bearer(one); got != "Bearer ty_one" || len(one.called()) != 6 {
		t.Errorf("the flag did not win over the environment: %q, %v", got, one.called())
	}

	// A machine without logins has all from the environment.
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, two.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}

	p.env.ConfigDir, p.vars[contexts.VarCA] = t.TempDir(), caFile
	run("jobs", "--all")
	p.vars[contexts.VarCA] = string(two.ca.PEM())
	run("jobs", "--all")
}

func TestContextCommands(t *testing.T) {
	t.Parallel()
	y := openYard(t)
	y.mux.HandleFunc("DELETE /api/v1/tokens/{id}", noContent)
	p := newPerson(t).at(t, y)
	file, err := contexts.Load(p.env.ConfigDir)
	if err != nil {
		t.Fatal(err)
	}

	file.Put(contexts.Context{Name: "other", Server: "https://other:7443", User: "grace", Token: "ty_secret"})

	if err := file.Save(); err != nil {
		t.Fatal(err)
	}

	for _, step := range []struct {
		args []string
		code int
	}{
		{[]string{"context", "use", "test"}, exit.OK},
		{[]string{"context"}, exit.OK},
		{[]string{"context", "use", "none"}, exit.NotFound},
		{[]string{"logout", "test", "--revoke"}, exit.OK},
		{[]string{"jobs"}, exit.Denied},
		{[]string{"logout", "other"}, exit.OK},
		{[]string{"context", "-o", "json"}, exit.OK},
	} {
		if code := p.types(t.Context(), step.args...); code != step.code {
			t.Errorf("%v: exit code %d, want %d: %s", step.args, code, step.code, p.stderr)
		}
	}

	golden(t, "contexts", strings.ReplaceAll(p.stdout.String(), y.URL, "https://yard"))

	calls := y.called()
	if len(calls) != 1 || !strings.HasPrefix(calls[0], "DELETE /api/v1/tokens/") || strings.Contains(calls[0], "ty_") {
		t.Errorf("calls: %v", calls)
	}

	if strings.Contains(p.stdout.String()+p.stderr.String(), "ty_") {
		t.Error("a token was shown")
	}
}

func TestOthersReadingTheTokensAreWarnedOf(t *testing.T) {
	t.Parallel()
	p := newPerson(t).at(t, openYard(t))
	if err := os.Chmod(filepath.Join(p.env.ConfigDir, "config.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}

	if code := p.types(t.Context(), "context"); code != exit.OK || !strings.Contains(p.stderr.String(), "chmod 600") {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
}

// An access token does not carry the hash of the CA, so the line that tokens create prints does, and whoami shows it
// to whom a newcomer asks (newcomer 18).
func TestTheLoginLineOfANewTokenIsWhole(t *testing.T) {
	t.Parallel()
	y := openYard(t)
	kind := tenant.AccessToken
	y.mux.HandleFunc("POST /api/v1/tokens", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, api.NewToken{Token: api.Token{ID: "x", Kind: kind, Owner: "ben", Expires: now}, Text: "secret"})
	})

	p := newPerson(t).at(t, y)
	p.terminal = true

	line := "trainyard login " + y.URL + " --ca-hash " + y.ca.Hash()
	if code := p.types(t.Context(), "tokens", "create", "--owner", "ben"); code != exit.OK ||
		!strings.Contains(p.stderr.String(), line) {
		t.Errorf("exit code %d, stderr lacks %q: %s", code, line, p.stderr)
	}

	kind = tenant.BootstrapToken // it carries the hash
	p = newPerson(t).at(t, y)
	p.terminal = true

	if code := p.types(t.Context(), "tokens", "create", "--login", "--owner", "ben"); code != exit.OK ||
		!strings.Contains(p.stderr.String(), "trainyard login "+y.URL) || strings.Contains(p.stderr.String(), "--ca-hash") {
		t.Errorf("a login token: exit code %d: %s", code, p.stderr)
	}

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "whoami"); code != exit.OK || !strings.Contains(p.stdout.String(), y.ca.Hash()) {
		t.Errorf("whoami does not show the CA: %d %s", code, p.stdout)
	}
}
