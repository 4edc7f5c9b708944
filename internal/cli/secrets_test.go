package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
)

// withSecrets is a yard that takes secrets.
func withSecrets(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	set := api.Secret{Subject: "user/ada", Name: "KEY", Created: ago(time.Hour), Updated: ago(time.Minute), By: "ada"}
	y.answer("GET /api/v1/whoami", api.Whoami{User: "ada"})
	y.answer("PUT /api/v1/secrets/{kind}/{of}/{name}", set)
	y.mux.HandleFunc("DELETE /api/v1/secrets/{kind}/{of}/{name}", noContent)
	y.answer("POST /api/v1/secrets/rotate-key", api.KeyRotation{Key: "2026-03-01-0a1b2c3d", Secrets: 2})

	lost := api.Secret{
		Subject: "project/vision", Name: "DEPLOY_KEY", Created: ago(48 * time.Hour), Updated: ago(48 * time.Hour), By: "root",
		Problem: "key 2026-01-01-00000000 not found in key file /data/secrets.key",
	}
	y.answer("GET /api/v1/secrets", api.SecretPage{Secrets: []api.Secret{lost, set}})

	return y
}

func TestTheValueOfASecretComesFromWhereNobodySeesIt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, []byte("-----BEGIN-----\nabc\n-----END-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		args  []string
		stdin string
		typed string
		call  string
		want  string
	}{
		"standard input":            {nil, "hunter2hunter2\n", "", "user/ada/KEY", "hunter2hunter2"},
		"standard input, Windows":   {nil, "hunter2hunter2\r\n", "", "user/ada/KEY", "hunter2hunter2"},
		"several lines":             {nil, "one\ntwo\n", "", "user/ada/KEY", "one\ntwo\n"},
		"a file":                    {[]string{"--file", file}, "", "", "user/ada/KEY", "-----BEGIN-----\nabc\n-----END-----\n"},
		"a prompt":                  {nil, "", "hunter2hunter2", "user/ada/KEY", "hunter2hunter2"},
		"for a project":             {[]string{"--project", "vision"}, "hunter2hunter2", "", "project/vision/KEY", "hunter2hunter2"},
		"for another, of the stdin": {[]string{"--owner", "bob", "--file", "-"}, "hunter2hunter2", "", "user/bob/KEY", "hunter2hunter2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := withSecrets(t)
			p := newPerson(t).at(t, y)
			p.env.Stdin = strings.NewReader(test.stdin)
			if test.typed != "" {
				p.terminal = true
				p.env.ReadSecret = func(context.Context) (string, error) { return test.typed, nil }
			}

			if code := p.types(t.Context(), append([]string{"secrets", "set", "KEY"}, test.args...)...); code != exit.OK {
				t.Fatalf("exit code %d: %s", code, p.stderr)
			}

			body, _ := y.sent("PUT /api/v1/secrets/" + test.call)

			var sent api.SecretRequest
			if err := json.Unmarshal(body, &sent); err != nil || sent.Value != test.want {
				t.Errorf("sent %q (%v), want %q", sent.Value, err, test.want)
			}

			if p.stdout.String() != "Stored secret KEY of user/ada.\n" {
				t.Errorf("printed %q", p.stdout)
			}
			if strings.Contains(p.stdout.String()+p.stderr.String(), "hunter2") {
				t.Errorf("printed %s%s", p.stdout, p.stderr)
			}
		})
	}
}

func TestASecretOnTheCommandLineIsRefused(t *testing.T) {
	t.Parallel()
	p := newPerson(t).at(t, withSecrets(t))

	if code := p.types(t.Context(), "secrets", "set", "KEY", "hunter2hunter2"); code != exit.Usage {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}

	if text := p.stderr.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, "--file") {
		t.Errorf("printed %q, want how to give the value, without the value", text)
	}
}

func TestSecretsAreListedRemovedAndRotated(t *testing.T) {
	t.Parallel()
	y := withSecrets(t)

	for name, args := range map[string][]string{
		"secrets":        {"secrets", "list"},
		"secrets-json":   {"secrets", "list", "-o", "json"},
		"secrets-rm":     {"secrets", "rm", "KEY"},
		"secrets-rotate": {"secrets", "rotate-key"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), args...); code != exit.OK {
			t.Fatalf("%v: exit code %d: %s", args, code, p.stderr)
		}

		golden(t, name, p.stdout.String())
	}
}
