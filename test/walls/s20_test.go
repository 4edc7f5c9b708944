package walls_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestS20_LiveFeedsOfAUserAreBounded follows more feeds at once than anybody needs.
func TestS20_LiveFeedsOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--max-streams", "3")
	mallory, alice := y.user(t, "mallory"), y.user(t, "alice")
	client, err := y.HTTP()
	must(t, err)

	defer client.CloseIdleConnections()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	follow := func(u *user) *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, y.URL()+"/api/v1/events/follow", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+u.text)

		resp, err := client.Do(req)
		must(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })

		return resp
	}

	for range 3 {
		if resp := follow(mallory); resp.StatusCode != http.StatusOK {
			t.Fatalf("a feed: %s", resp.Status)
		}
	}

	a := mallory.call(t, http.MethodGet, "/api/v1/events/follow", nil)
	if a.status != http.StatusTooManyRequests || a.problem.Code != "too_many_streams" ||
		!strings.Contains(a.problem.Detail, "mallory has 3, the limit is 3") {
		t.Errorf("one feed too many: %s", &a)
	}

	if resp := follow(alice); resp.StatusCode != http.StatusOK {
		t.Errorf("a feed of alice: %s", resp.Status)
	}
}

// TestS20_KeysThatOthersCanReadOrReplaceAreRefused starts a server whose CA others could have read, or made.
func TestS20_KeysThatOthersCanReadOrReplaceAreRefused(t *testing.T) {
	t.Parallel()
	needRoot(t)

	for name, expose := range map[string]struct {
		change func(path string) error
		says   string
	}{
		"group":         {func(path string) error { return os.Chmod(path, 0o640) }, "accessible to other users"},
		"another owner": {func(path string) error { return os.Chown(path, agentUser, 0) }, "belongs to another user (uid 40000)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)

			paths, err := filepath.Glob(filepath.Join(y.Folder, "*", "ca", "ca.pem"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("the CA is in %q (%v)", paths, err)
			}

			must(t, expose.change(paths[0]))

			r := y.admin.types(t, "server", "--data", filepath.Dir(filepath.Dir(paths[0])), "--listen", "127.0.0.1:0")
			if r.code == 0 || !strings.Contains(r.err, expose.says) {
				t.Errorf("it starts: %s", &r)
			}
		})
	}
}
