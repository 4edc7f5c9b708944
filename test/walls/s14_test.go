package walls_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/id"
)

// What is planted, and must be found nowhere. It is put together here so that no file of the test has it either.
var (
	plantedToken = strings.Join([]string{"planted", "token", "4711"}, "-")
	plantedLine  = strings.Join([]string{"planted", "line", "0815"}, "-")
	plantedFile  = strings.Join([]string{"planted", "dotenv", "1234"}, "-")
)

// store sets a secret as a person does, with the value on standard input.
func (u *user) store(t *testing.T, name, value string) {
	t.Helper()
	cmd := u.Command(t.Context(), "secrets", "set", name)
	cmd.Stdin = strings.NewReader(value)

	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), value) {
		t.Fatalf("secrets set: %v\n%s", err, out)
	}
}

// find lists the files below a folder in which a text is, also compressed ones.
func find(t *testing.T, folder string, texts ...string) []string {
	t.Helper()

	var list []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // it is a yard that works
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}

		if unpacked, uerr := gzip.NewReader(bytes.NewReader(data)); uerr == nil {
			more, _ := io.ReadAll(unpacked) // as far as it goes
			data = append(data, more...)
		}

		for _, text := range texts {
			if bytes.Contains(data, []byte(text)) {
				list = append(list, path)
			}
		}

		return err
	})
	must(t, err)

	return list
}

// processes returns the command lines of all processes of the machine.
func processes(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)

	var all bytes.Buffer
	for _, path := range paths {
		data, _ := os.ReadFile(path) // it may have ended
		all.Write(append(data, '\n'))
	}

	return all.String()
}

// TestS14_SecretsAreNowhere plants secrets, lets a job use and print them, and searches everything that a node and a
// server keep while it runs and afterwards.
func TestS14_SecretsAreNowhere(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north")
	ada := y.user(t, "ada")
	ada.store(t, "TOKEN", plantedToken+"\n")
	ada.store(t, "KEY", "-----BEGIN-----\n"+plantedLine+"\n-----END-----\n")

	work, signal := t.TempDir(), filepath.Join(t.TempDir(), "go")
	must(t, os.WriteFile(filepath.Join(work, ".env"), []byte("PASSWORD="+plantedFile+"\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(work, "job.yaml"), []byte(
		"workdir: .\nsecrets: [TOKEN, 'KEY:file']\n"+script(
			`[ ${#TOKEN} = 18 ] && grep -q BEGIN "$KEY" && [ ! -e .env ] || exit 3`,
			`printf "${TOKEN:0:9}"; sleep 0.1; printf "${TOKEN:9}\n"; cat "$KEY"; echo "$TOKEN" >&2`,
			`echo ready; until [ -e `+signal+` ]; do sleep 0.1; done; echo "bad: $TOKEN"; exit 7`)), 0o600))

	submitted := ada.types(t, "submit", "-q", filepath.Join(work, "job.yaml"))
	if submitted.code != 0 || !strings.Contains(submitted.err, "left out because they may hold secrets: .env") {
		t.Fatalf("submit: %s", &submitted)
	}

	j := id.Job(strings.TrimSpace(submitted.out))
	y.await(t, "the job has printed its secrets", func() bool { return strings.Contains(ada.output(t, j), "ready") })

	running := find(t, y.Folder, plantedToken, plantedFile)
	for _, path := range find(t, y.Folder, plantedLine) {
		if !strings.HasSuffix(path, "/secrets/KEY") { // the file that the program asked for
			running = append(running, path)
		}
	}

	if len(running) > 0 {
		t.Errorf("while the job runs secrets are in %v", running)
	}

	if all := processes(t); strings.Contains(all, plantedToken) || strings.Contains(all, plantedLine) {
		t.Error("a secret is in a command line")
	}

	y.admin.must(t, "backup", "--data", filepath.Join(y.Folder, "server"), filepath.Join(y.Folder, "yard.backup"))
	must(t, os.WriteFile(signal, nil, 0o600))

	if d := ada.ended(t, j); !strings.Contains(d.Reason, "bad: ***") {
		t.Errorf("the job ended with %s: %s", d.State, d.Reason)
	}

	y.await(t, "all of its output is there", func() bool { return strings.Contains(ada.output(t, j), "bad:") })

	if out := ada.output(t, j); strings.Contains(out, "planted") || strings.Count(out, "***") != 4 {
		t.Errorf("its output is %q", out)
	}

	if list := find(t, y.Folder, plantedToken, plantedLine, plantedFile); len(list) > 0 {
		t.Errorf("after its end secrets are in %v", list)
	}

	added := y.audit(t, "secret.added", func(e *api.Event) bool { return strings.Contains(e.Reason, "KEY") })
	if added.Owner != "ada" || added.Actor != "ada" || added.Reason != "secret user/ada/KEY set by ada" {
		t.Errorf("the record is %+v", added)
	}
}

// TestS14_SecretsOfOthersAreOutOfReach lets a researcher, and an admin, try to get at a secret that is not theirs.
func TestS14_SecretsOfOthersAreOutOfReach(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north")
	ada, mallory := y.user(t, "ada"), y.user(t, "mallory")
	ada.store(t, "TOKEN", plantedToken)
	y.admin.must(t, "projects", "add", "vision")
	_, err := y.admin.PutSecret(t.Context(), "project", "vision", "TOKEN", plantedToken)
	must(t, err)

	j := ada.submit(t, "env: {PASSWORD: "+plantedFile+"}\nsecrets: TOKEN\n"+script("true"))
	ada.ended(t, j)

	for file, reason := range map[string]string{
		"secrets: TOKEN\n" + script("echo $TOKEN"):                  "secret TOKEN not found",
		"project: vision\nsecrets: TOKEN\n" + script("echo $TOKEN"): "mallory is not a member of project vision",
		"project: Vision\nsecrets: TOKEN\n" + script("echo $TOKEN"): "project",
		"secrets: 'TOKEN:file'\n" + script("cat $TOKEN"):            "secret TOKEN not found",
	} {
		_, err := mallory.Submit(t.Context(), api.SubmitRequest{File: file}, "")
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want %s", file, err, reason)
		}
	}

	for _, attack := range []struct {
		by           *user
		method, path string
		body         any
		status       int
		reason       string
	}{
		{mallory, http.MethodPut, "/api/v1/secrets/user/ada/TOKEN", api.SecretRequest{Value: "mallory's value"}, 403,
			"mallory cannot"},
		{mallory, http.MethodDelete, "/api/v1/secrets/user/ada/TOKEN", nil, 403, "mallory cannot"},
		{mallory, http.MethodDelete, "/api/v1/secrets/project/vision/TOKEN", nil, 403, "mallory cannot"},
		{mallory, http.MethodPost, "/api/v1/secrets/rotate-key", nil, 403, "mallory cannot"},
		{mallory, http.MethodGet, "/api/v1/jobs/" + string(j) + "?env=true", nil, 404, ""},
		{mallory, http.MethodGet, "/api/v1/secrets", nil, 200, ""},
		{y.admin, http.MethodGet, "/api/v1/secrets", nil, 200, ""},
		{y.admin, http.MethodGet, "/api/v1/jobs/" + string(j), nil, 200, ""},
		{y.admin, http.MethodGet, "/api/v1/jobs/" + string(j) + "?env=true", nil, 403, "only ada can read the env"},
		{y.admin, http.MethodGet, "/api/v1/events?specs=true", nil, 200, ""},
	} {
		got := attack.by.call(t, attack.method, attack.path, attack.body)
		if got.status != attack.status || !strings.Contains(got.text, attack.reason) || strings.Contains(got.text,
			"planted") {
			t.Errorf("%s %s of %s: %s", attack.method, attack.path, attack.by.name, &got)
		}
	}
}
