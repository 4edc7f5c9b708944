package container

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"golang.org/x/sys/unix"

	"trainyard/internal/clock"
	"trainyard/internal/executable"
	"trainyard/internal/job"
)

// newHolder returns a program that holds a container, and its pipe.
func newHolder(t *testing.T) (pipe, program string) {
	t.Helper()

	dir := t.TempDir()
	pipe, program = filepath.Join(dir, "alive"), filepath.Join(dir, "hold")

	text, err := holder(pipe)
	if err == nil {
		err = errors.Join(unix.Mkfifo(pipe, 0o600), executable.Write(program, text, 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}

	return pipe, program
}

func TestTheHolderWaitsForTheEndOfItsPipe(t *testing.T) {
	t.Parallel()

	pipe, program := newHolder(t)

	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), program)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	// The byte is read, and does not end it. This end does not read, so the pipe becomes empty by the holder alone.
	if _, err := writer.WriteString("x"); err != nil {
		t.Fatal(err)
	}

	for unread := 1; unread > 0; time.Sleep(time.Millisecond) {
		if unread, err = unix.IoctlGetInt(int(writer.Fd()), unix.TIOCINQ); err != nil {
			t.Fatal(err)
		}
	}

	if err := unix.Kill(cmd.Process.Pid, 0); err != nil {
		t.Errorf("it has ended early: %v", err)
	}

	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestTheHolderDoesNotWaitForAWriter(t *testing.T) {
	t.Parallel()
	_, program := newHolder(t)

	if err := exec.CommandContext(t.Context(), program).Run(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestProgressIsThatOfAllLayers(t *testing.T) {
	t.Parallel()

	l := layers{}
	for _, tt := range []struct {
		m    jsonstream.Message
		want string
	}{
		{jsonstream.Message{Status: "Pulling from a"}, ""},
		{jsonstream.Message{ID: "1", Status: "Waiting"}, ""},
		{jsonstream.Message{ID: "1", Progress: &jsonstream.Progress{Current: 1 << 20, Total: 4 << 20}}, "1 MB of 4 MB"},
		{jsonstream.Message{ID: "2", Progress: &jsonstream.Progress{Current: 2 << 20, Total: 6 << 20}}, "3 MB of 10 MB"},
		{jsonstream.Message{ID: "1", Progress: &jsonstream.Progress{Current: 9 << 20, Total: 4 << 20}}, "6 MB of 10 MB"},
	} {
		if got := l.take(tt.m); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.m, got, tt.want)
		}
	}
}

func TestWhichImagesAreRemoved(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return now.AddDate(0, 0, -n) }
	list := images{known: map[string]pulled{
		"old": {Size: 10, Used: day(31)}, "large": {Size: 70, Used: day(3)}, "small": {Size: 20, Used: day(2)},
		"new": {Size: 50, Used: day(1)},
	}}

	for _, tt := range []struct {
		room job.Bytes
		want []string
	}{
		{1000, []string{"old"}}, {140, []string{"old"}}, {100, []string{"old", "large"}},
		{60, []string{"old", "large", "small"}}, {1, []string{"old", "large", "small", "new"}},
	} {
		if got := list.due(now, 30*24*time.Hour, tt.room); !slices.Equal(got, tt.want) {
			t.Errorf("with room for %d bytes %v are removed, want %v", tt.room, got, tt.want)
		}
	}
}

// What engines and registries say, collected from podman 4.3 and Docker 20.10 to 28.
func TestErrorsOfEnginesAreExplained(t *testing.T) {
	t.Parallel()

	e := &Engine{socket: "/nowhere"}
	ref, err := reference.ParseNormalizedNamed("ghcr.io/org/name:1")
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		text       string
		authorised bool
		secret     string
		want       string
	}{
		{"manifest for ghcr.io/org/name:1 not found: manifest unknown: manifest unknown", false, "", "not found in registry ghcr.io"},
		{"reading manifest 1 in ghcr.io/org/name: name unknown: Unknown name", false, "", "not found in registry ghcr.io"},
		{"reading manifest 1 in ghcr.io/org/name: unauthorized: authentication required", false, "", "wants credentials"},
		{"unable to retrieve auth token: invalid username/password: unauthorized", true, "", "refuses the credentials of this node"},
		{"unable to retrieve auth token: invalid username/password: unauthorized", true, "LOGIN", "refuses the credentials in secret LOGIN"},
		{`Head "https://ghcr.io/v2/org/name/manifests/1": no basic auth credentials`, false, "", "wants credentials"},
		{"pull access denied for org/name, repository does not exist or may require 'docker login'", false, "", "wants credentials"},
		{"writing blob: storing blob to file: write /var/tmp/x: no space left on device", false, "", "no space is left"},
		{"no matching manifest for linux/amd64 in the manifest list entries", false, "", "it has no variant for linux/"},
		{`choosing image instance: no image found in manifest list for architecture amd64, variant "", OS linux`, false, "", "no variant"},
		{"pinging container registry ghcr.io: Get \"https://ghcr.io/v2/\": dial tcp: lookup ghcr.io: no such host", false, "", "cannot be reached"},
		{"the sky is falling", false, "", "cannot be pulled: the sky is falling"},
	} {
		got := e.explain(Pull{Image: "ghcr.io/org/name:1", Secret: tt.secret}, ref, tt.authorised, errors.New(tt.text)).Error()
		if !strings.HasPrefix(got, "image ghcr.io/org/name:1: ") || !strings.Contains(got, tt.want) {
			t.Errorf("%q: %q, want %q in it", tt.text, got, tt.want)
		}
	}
}

// TestDockerAsksForImagesThatItHas has an engine that, as Docker does, pulls by a digest what it has without asking the
// registry, which refuses.
func TestDockerAsksForImagesThatItHas(t *testing.T) {
	t.Parallel()

	socket := filepath.Join(t.TempDir(), "sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	docker := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/_ping"):
			w.Header().Set("Api-Version", "1.47")
		case strings.HasSuffix(path, "/version"):
			_, _ = w.Write([]byte(`{"Version": "28.0", "Components": [{"Name": "Engine", "Version": "28.0"}]}`))
		case strings.HasSuffix(path, "/images/create"):
			_, _ = w.Write([]byte(`{"status": "Status: Image is up to date"}`))
		case strings.HasSuffix(path, "/json") && strings.Contains(path, "/images/"):
			_, _ = w.Write([]byte(`{"Id": "sha256:1", "Os": "linux", "Architecture": "` + runtime.GOARCH + `"}`))
		case strings.Contains(path, "/distribution/") && r.Header.Get("X-Registry-Auth") != "":
			_, _ = w.Write([]byte(`{}`))
		default:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"message": "unauthorized: authentication required"}`))
		}
	}))
	_ = docker.Listener.Close() // it is on loopback
	docker.Listener = l
	docker.Start()
	t.Cleanup(docker.Close)

	e, err := Open(Options{Dir: t.TempDir(), Socket: socket, Clock: clock.Wall{}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = e.Close() })

	name := "ghcr.io/org/name@sha256:" + strings.Repeat("0a", 32)
	if _, err := e.Pull(t.Context(), Pull{Image: name, Secret: "LOGIN", Auth: "ada:password"}, func(string) {}); err != nil {
		t.Errorf("with credentials: %v", err)
	}

	if _, err := e.Pull(t.Context(), Pull{Image: name}, func(string) {}); err == nil ||
		!strings.Contains(err.Error(), "wants credentials for it") {
		t.Errorf("without credentials: %v", err)
	}
}

func TestCredentialsAreFoundByRegistryAndPath(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "auth.json")
	text := `{"auths": {"ghcr.io": {"auth": "YTpi"}, "ghcr.io/org": {"auth": "Yzpk"}, "https://index.docker.io/v1/": {"auth": "ZTpm"}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	e := &Engine{opt: Options{Auth: file}}

	for name, want := range map[string]string{
		"ghcr.io/other/name": "a", "ghcr.io/org/name:1": "c", "python": "e", "quay.io/a/b": "",
	} {
		ref, err := reference.ParseNormalizedNamed(name)
		if err != nil {
			t.Fatal(err)
		}

		got, err := e.credentials(ref)
		if err != nil {
			t.Fatal(err)
		}

		if user := userOf(t, got); user != want {
			t.Errorf("%s: credentials of %q, want %q", name, user, want)
		}
	}
}

// userOf reads the user of encoded credentials, "" for none.
func userOf(t *testing.T, text string) string {
	t.Helper()

	if text == "" {
		return ""
	}

	plain, err := base64.URLEncoding.DecodeString(text)
	var auth registry.AuthConfig
	if err == nil {
		err = json.Unmarshal(plain, &auth)
	}

	if err != nil {
		t.Fatal(err)
	}

	return auth.Username
}
