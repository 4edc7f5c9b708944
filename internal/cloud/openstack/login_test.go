package openstack_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"trainyard/internal/cloud/openstack"
)

// keystone gives tokens and takes them back; its Nova has no servers.
type keystone struct {
	mu     sync.Mutex
	logins int
	valid  string
}

func (k *keystone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")

	answer := `{"servers": []}`
	switch {
	case r.Method == http.MethodPost:
		k.logins++
		k.valid = fmt.Sprintf("token %d", k.logins)
		w.Header().Set("X-Subject-Token", k.valid)
		w.WriteHeader(http.StatusCreated)
		answer = string(loggedIn().Answer)
	case r.Header.Get("X-Auth-Token") != k.valid:
		w.WriteHeader(http.StatusUnauthorized)
		answer = `{"error": {"code": 401, "message": "expired"}}`
	}

	_, _ = io.WriteString(w, answer) // whoever asked may be gone
}

func TestManyShareOneLogin(t *testing.T) {
	t.Parallel()
	world := &keystone{}
	server := httptest.NewServer(world)
	t.Cleanup(server.Close)

	p, err := openstack.New("yard", handConfig())
	if err != nil {
		t.Fatal(err)
	}

	p.Through(
		hosts{base: server.Client().Transport, to: func(string) string { return strings.TrimPrefix(server.URL, "http://") }},
	)

	for round := 1; round <= 3; round++ {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if _, err := p.List(t.Context()); err != nil {
					t.Errorf("list in round %d: %v", round, err)
				}
			})
		}

		wg.Wait()
		world.mu.Lock()

		if world.logins != round {
			t.Errorf("%d logins after %d tokens ran out, want %d", world.logins, round-1, round)
		}

		world.valid = "none: it has run out"
		world.mu.Unlock()
	}
}
