package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/vault"
	"trainyard/internal/yardmaster"
)

const plantedSecret = "planted-secret-4711"

// wantNowhere makes sure that no file below a directory contains a text.
func wantNowhere(t *testing.T, dir string, texts ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		data, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("%q is in %s", text, path)
			}
		}

		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestASecretReachesTheNodeOfTheRunAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	y := startYard(t, dir)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)
	ada, n := y.client(token), y.join("n1")
	n.listen()

	said := y.raw(y.http, http.MethodPut, "/api/v1/secrets/user/ada/KEY", token, `{"value":"`+plantedSecret+`"}`)
	if said.status != http.StatusOK || bytes.Contains(said.body, []byte("planted")) {
		t.Errorf("setting it was answered with %d %s", said.status, said.body)
	}

	_, err := ada.PutSecret(t.Context(), "user", "ada", "FILE", "planted one\nplanted two\n")
	y.must(err)
	j := y.submit(ada, "run: a\nsecrets: [KEY, 'FILE:file']")[0].ID
	got := n.assigned(n.awaitRun(j, 1))
	want := []api.SecretValue{{Name: "KEY", Value: plantedSecret}, {Name: "FILE",
		Value: "planted one\nplanted two\n", File: true}}
	if diff := cmp.Diff(want, got.Secrets); diff != "" || got.SecretsError != "" {
		t.Errorf("secrets of the assignment (-want +got):\n%s%s", diff, got.SecretsError)
	}

	for _, path := range []string{
		"/api/v1/secrets", "/api/v1/jobs/" + string(j), "/api/v1/jobs/" + string(j) + "?env=true", "/api/v1/jobs",
		"/api/v1/events?specs=true",
	} {
		answer := y.raw(y.http, http.MethodGet, path, token, "")
		if answer.status != http.StatusOK || bytes.Contains(answer.body, []byte("planted")) {
			t.Errorf("%s was answered with %d %s", path, answer.status, answer.body)
		}
	}

	wantNowhere(t, dir, "planted")

	// A retry gets the value that is set now.
	_, err = ada.PutSecret(t.Context(), "user", "ada", "KEY", "another value")
	y.must(err)
	_, err = ada.PauseJob(t.Context(), j)
	y.must(err)
	n.await(func(a api.Assignments) bool {
		return len(a.Runs) == 1 && a.Runs[0].Stop != job.StopNone && len(a.Runs[0].Secrets) == 0
	})
	now := y.clock.Now()
	n.tell(api.RankReport{
		Run: got.Run, UID: got.Launch.UID, State: job.RunEnded, Started: now, Ended: now, Cause: job.CauseCancelled,
		Signalled: true,
	})
	_, err = ada.ResumeJob(t.Context(), j)
	y.must(err)

	if again := n.assigned(n.awaitRun(j, 2)); len(again.Secrets) != 2 || again.Secrets[0].Value != "another value" {
		t.Errorf("the next run gets %+v", again.Secrets)
	}

	// A run whose secret is gone before it has started is told so, when the node is next told anything.
	y.must(ada.RemoveSecret(t.Context(), "user", "ada", "KEY"))
	y.submit(ada, "run: b")
	n.await(func(a api.Assignments) bool {
		return slices.ContainsFunc(a.Runs, func(r api.Assignment) bool {
			return r.Job == j && r.SecretsError == "secret KEY not found" && len(r.Secrets) == 0
		})
	})
}

// TestCredentialsForARegistryReachTheNodeBesideTheSecrets has a program that gets one secret, and its node another one.
func TestCredentialsForARegistryReachTheNodeBesideTheSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	y := startYard(t, dir)
	ada, n := y.client(y.token("ada", tenant.Researcher, tenant.ScopeSubmit)), y.join("n1")
	n.listen()

	inventory := someInventory()
	inventory.Containers = &fleet.Containers{OK: true, Engine: "podman 5"}
	_, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inventory})
	y.must(err)

	_, err = ada.Submit(t.Context(), api.SubmitRequest{File: "run: a\nimage: a/b\nregistry_auth: LOGIN\n"}, "")
	if f := new(fault.Error); !errors.As(err, &f) || f.Field != "registry_auth" ||
		!strings.Contains(f.Error(), "secret LOGIN not found") {
		t.Errorf("credentials that are not stored: %v", err)
	}

	for name, value := range map[string]string{"KEY": plantedSecret, "LOGIN": "ada:planted too"} {
		_, err := ada.PutSecret(t.Context(), "user", "ada", name, value)
		y.must(err)
	}

	j := y.submit(ada, "run: a\nimage: a/b\nregistry_auth: LOGIN\nsecrets: [KEY]")[0].ID
	got := n.assigned(n.awaitRun(j, 1))

	if got.RegistryAuth != "ada:planted too" || got.Launch.RegistryAuth != "LOGIN" || len(got.Secrets) != 1 ||
		got.Secrets[0].Value != plantedSecret {
		t.Errorf("the assignment has %+v", got)
	}

	j = y.submit(ada, "run: a\nimage: a/b\nregistry_auth: LOGIN")[0].ID
	if got := n.assigned(n.awaitRun(j, 1)); got.RegistryAuth != "ada:planted too" || len(got.Secrets) != 0 {
		t.Errorf("the assignment of a job without other secrets has %+v", got)
	}

	wantNowhere(t, dir, "planted")
}

func TestBadSecretsAreRefusedWithoutRepeatingThem(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	token := y.token("ada", tenant.Researcher, tenant.ScopeSubmit)

	for name, test := range map[string]struct{ name, value, code string }{
		"too short":     {"KEY", `"qqqqqqq"`, "secret_too_short"},
		"too long":      {"KEY", `"` + strings.Repeat("q", tenant.MaxSecret+1) + `"`, "too_large"},
		"with NUL":      {"KEY", `"qqqqqqq\u0000"`, "bad_value"},
		"white space":   {"KEY", `"         "`, "bad_value"},
		"a number":      {"KEY", `12345678`, "bad_request"},
		"reserved name": {"TRAINYARD_KEY", `"qqqqqqqq"`, "bad_name"},
		"a bad name":    {"K-Y", `"qqqqqqqq"`, "bad_request"},
	} {
		answer := y.raw(y.http, http.MethodPut, "/api/v1/secrets/user/ada/"+test.name, token, `{"value":`+test.value+`}`)
		if answer.p.Code != test.code || bytes.Contains(answer.body, []byte("qqq")) || bytes.Contains(answer.body,
			[]byte("12345678")) {
			t.Errorf("%s: answered with %d %.300s, want %s", name, answer.status, answer.body, test.code)
		}
	}
}

func TestSecretsOfOthersAreForAdminsAndOfProjectsForLeads(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob, root := y.researcher("ada"), y.researcher("bob"), y.admin()
	_, err := ada.PutSecret(t.Context(), "user", "ada", "KEY", plantedSecret)
	y.must(err)

	_, err = bob.PutSecret(t.Context(), "user", "ada", "KEY", "that of bob")
	wantFault(t, err, fault.Denied, "not_allowed")
	wantFault(t, bob.RemoveSecret(t.Context(), "user", "ada", "KEY"), fault.Denied, "not_allowed")
	_, err = root.PutSecret(t.Context(), "project", "vision", "KEY", plantedSecret)
	wantFault(t, err, fault.NotFound, "project_not_found")
	y.do(yardmaster.PutProject{Project: "vision", By: "root"})
	_, err = bob.PutSecret(t.Context(), "project", "vision", "KEY", plantedSecret)
	wantFault(t, err, fault.Denied, "not_allowed")
	_, err = root.PutSecret(t.Context(), "user", "nobody", "KEY", plantedSecret)
	wantFault(t, err, fault.NotFound, "user_not_found")
	_, err = root.PutSecret(t.Context(), "project", "vision", "KEY", plantedSecret)
	y.must(err)

	names := func(c *api.Client) string {
		page, err := c.Secrets(t.Context(), api.Page{Limit: 1})
		y.must(err)
		all := page.Secrets
		for page.Next != "" {
			page, err = c.Secrets(t.Context(), api.Page{Limit: 1, Cursor: page.Next})
			y.must(err)
			all = append(all, page.Secrets...)
		}

		var list []string
		for _, s := range all {
			list = append(list, s.Subject+"/"+s.Name+" by "+string(s.By))
		}

		return strings.Join(list, ", ")
	}

	for who, want := range map[*api.Client]string{
		ada: "user/ada/KEY by ada", bob: "", root: "project/vision/KEY by root, user/ada/KEY by ada",
	} {
		if got := names(who); got != want {
			t.Errorf("listed %q, want %q", got, want)
		}
	}

	_, err = bob.Submit(t.Context(), api.SubmitRequest{File: "run: a\nproject: vision\nsecrets: KEY"}, "")
	wantFault(t, err, fault.Denied, "not_a_member")

	y.do(yardmaster.PutMember{Member: tenant.Member{Project: "vision", User: "bob", Lead: true}, By: "root"})
	_, err = bob.PutSecret(t.Context(), "project", "vision", "KEY", "set by the lead")
	y.must(err)

	if got := names(bob); got != "project/vision/KEY by bob" {
		t.Errorf("the lead lists %q", got)
	}
}

func TestTheMasterKeyIsRotated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	y := startYard(t, dir)
	ada, root, n := y.researcher("ada"), y.admin(), y.join("n1")
	n.listen()
	_, err := ada.PutSecret(t.Context(), "user", "ada", "KEY", plantedSecret)
	y.must(err)
	before, err := os.ReadFile(filepath.Join(dir, "secrets.key"))
	y.must(err)

	done, err := root.RotateSecretKey(t.Context())
	y.must(err)

	after, err := os.ReadFile(filepath.Join(dir, "secrets.key"))
	y.must(err)

	if done.Secrets != 1 || !bytes.Contains(after, []byte(done.Key)) || bytes.Count(after, []byte(`"key"`)) != 1 || bytes.Equal(before, after) {
		t.Errorf("rotated %+v; the key file is %s, was %s", done, after, before)
	}

	j := y.submit(ada, "run: a\nsecrets: KEY")[0].ID
	if got := n.assigned(n.awaitRun(j, 1)); len(got.Secrets) != 1 || got.Secrets[0].Value != plantedSecret {
		t.Errorf("after the rotation the run gets %+v %s", got.Secrets, got.SecretsError)
	}
}

// TestAKeyIsNotRotatedUnlessAllSecretsCanBeRead is about a server that is started with the key file of another yard:
// a new key would not help, and the file that an operator puts back must fit the secrets.
func TestAKeyIsNotRotatedUnlessAllSecretsCanBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := filepath.Join(dir, "secrets.key")

	t.Run("before", func(t *testing.T) { //nolint:paralleltest // one server after the other
		y := startYard(t, dir)
		_, err := y.researcher("ada").PutSecret(t.Context(), "user", "ada", "KEY", plantedSecret)
		y.must(err)
		y.must(os.Remove(key))
		y.must(vault.OpenKeyFile(key, y.clock, true).Problem())
	})

	t.Run("with another key", func(t *testing.T) { //nolint:paralleltest // one server after the other
		y := startYard(t, dir)
		before, err := os.ReadFile(key)
		y.must(err)

		_, err = y.admin().RotateSecretKey(t.Context())
		wantFault(t, err, fault.Unavailable, "secrets_key_missing")

		if after, err := os.ReadFile(key); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the key file is %s (%v), was %s", after, err, before)
		}
	})
}

// TestALostKeyHoldsJobsAndLosesNothing is about a server that is started without its key file, and then with it.
func TestALostKeyHoldsJobsAndLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, away := filepath.Join(dir, "secrets.key"), filepath.Join(dir, "away")

	t.Run("before", func(t *testing.T) { //nolint:paralleltest // one server after the other
		y := startYard(t, dir)
		ada := y.researcher("ada")
		_, err := ada.PutSecret(t.Context(), "user", "ada", "KEY", plantedSecret)
		y.must(err)
		y.submit(ada, "run: a\nsecrets: KEY")
		y.must(os.Rename(key, away))
	})

	t.Run("without the key", func(t *testing.T) { //nolint:paralleltest // one server after the other
		y := startYard(t, dir)
		ada := y.researcher("ada")
		detail, err := ada.Job(t.Context(), "j1")
		y.must(err)

		if detail.Why == nil || detail.Why.Blocker != "secret" ||
			!strings.HasPrefix(detail.Why.Sentence, fmt.Sprintf("secret KEY: key file %s of the secrets not found", key)) {
			t.Errorf("the job waits because of %+v", detail.Why)
		}

		page, err := ada.Secrets(t.Context(), api.Page{Limit: 10})
		if err != nil || len(page.Secrets) != 1 || page.Secrets[0].Problem == "" {
			t.Errorf("listed %+v (%v)", page, err)
		}

		_, err = ada.PutSecret(t.Context(), "user", "ada", "NEW", plantedSecret)
		wantFault(t, err, fault.Unavailable, "secrets_key_missing")
		_, err = y.admin().RotateSecretKey(t.Context())
		wantFault(t, err, fault.Unavailable, "secrets_key_missing")
		y.must(os.Rename(away, key))
	})

	t.Run("with the key", func(t *testing.T) { //nolint:paralleltest // one server after the other
		y := startYard(t, dir)
		n := y.join("n1")
		n.listen()

		if got := n.assigned(n.awaitRun("j1", 1)); len(got.Secrets) != 1 || got.Secrets[0].Value != plantedSecret {
			t.Errorf("with the key file back the run gets %+v %s", got.Secrets, got.SecretsError)
		}
	})
}

func TestValuesOfEnvAreShownToTheirOwnerAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	j := y.submit(ada, "run: a\nenv: {TOKEN: planted-env, LEVEL: high}")[0].ID
	reads := y.client(y.newToken(tenant.Token{
		Kind: tenant.AccessToken, Owner: "ada", Scope: tenant.ScopeRead, Expires: y.clock.Now().AddDate(0, 0, 1),
	}))
	root := y.admin()

	for _, c := range []*api.Client{ada, reads, root} {
		detail, err := c.Job(t.Context(), j)
		y.must(err)

		if text := string(detail.Spec); !strings.Contains(text, `"env":{"LEVEL":"***","TOKEN":"***"}`) {
			t.Errorf("shown: %s", text)
		}

		page, err := c.Events(t.Context(), api.EventFilter{Specs: true, Page: api.Page{Limit: 100}})
		y.must(err)

		for _, e := range page.Events {
			if strings.Contains(string(e.Spec), "planted-env") {
				t.Errorf("event %+v", e)
			}
		}
	}

	for _, c := range []*api.Client{reads, root} {
		_, err := c.JobWithEnv(t.Context(), j)
		wantFault(t, err, fault.Denied, "not_allowed")
	}

	detail, err := ada.JobWithEnv(t.Context(), j)
	if err != nil || !strings.Contains(string(detail.Spec), "planted-env") {
		t.Errorf("shown to the owner: %s (%v)", detail.Spec, err)
	}
}
