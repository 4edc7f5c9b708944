package openstack_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/cloud/openstack"
)

// TestReplay plays the scenario against what Keystone, Nova and Glance of Debian 13 answered when
// `make test-openstack RECORD=1` wrote it down. Every request must be the one that was made then.
func TestReplay(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/exchange.json")
	if err != nil {
		t.Fatal(err)
	}

	var said []Exchange
	if err := json.Unmarshal(data, &said); err != nil {
		t.Fatalf("testdata/exchange.json: %v", err)
	}

	p := recorded(t, said, openstack.Config{
		AuthURL: "http://keystone.test/v3", Username: "yard", Password: "PASSWORD", Project: "yard",
		Regions: []string{"lab"}, Image: "debian", Network: "none",
	})

	// The record has as many polls as were needed when it was made.
	scenario(t, p, time.Millisecond, nobody{})
}

// nobody is a world for replays, in which everything that happens outside the provider has happened
// already.
type nobody struct{}

func (nobody) stop(*testing.T, string) {}

// recorded returns a provider whose cloud answers from a record, in order. At the end it checks that the whole
// record was used.
func recorded(t *testing.T, said []Exchange, config openstack.Config) *openstack.Provider {
	t.Helper()
	p, err := openstack.New("yard", config)
	if err != nil {
		t.Fatal(err)
	}

	tape := &tape{t: t, said: said}
	server := httptest.NewServer(tape)
	t.Cleanup(func() {
		server.Close()
		tape.mu.Lock()
		defer tape.mu.Unlock()

		if left := len(tape.said) - tape.next; left > 0 && !t.Failed() {
			t.Errorf(
				"%d requests were not made; the next is %s %s",
				left,
				tape.said[tape.next].Method,
				tape.said[tape.next].Path,
			)
		}
	})

	p.Through(
		hosts{base: server.Client().Transport, to: func(string) string { return strings.TrimPrefix(server.URL, "http://") }},
	)
	p.Patience(time.Minute, time.Millisecond)

	return p
}

// tape answers from a record.
type tape struct {
	t *testing.T

	mu   sync.Mutex
	said []Exchange
	next int
}

func (tp *tape) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tp.mu.Lock()
	defer tp.mu.Unlock()

	body, err := io.ReadAll(r.Body)
	if err != nil {
		tp.t.Errorf("read a request: %v", err)
	}

	if tp.next == len(tp.said) {
		tp.t.Errorf("%s %s comes after the end of the record", r.Method, r.URL)
		w.WriteHeader(http.StatusTeapot)
		return
	}

	want := &tp.said[tp.next]

	got := Exchange{Service: r.Header.Get("X-Service"), Method: r.Method, Path: r.URL.RequestURI()}
	if got.Service != want.Service || got.Method != want.Method || got.Path != want.Path {
		tp.t.Errorf(
			"request %d is %s %s %s, was %s %s %s",
			tp.next,
			got.Service,
			got.Method,
			got.Path,
			want.Service,
			want.Method,
			want.Path,
		)
	} else if diff := cmp.Diff(tree(tp.t, want.Asked), tree(tp.t, body)); diff != "" {
		tp.t.Errorf("request %d, %s %s, has another body (-recorded +asked):\n%s", tp.next, got.Method, got.Path, diff)
	}

	if r.Header.Get("X-Auth-Token") == "" && got.Service != "keystone" {
		tp.t.Errorf("request %d, %s %s, has no token", tp.next, got.Method, got.Path)
	}

	tp.next++
	w.Header().Set("Content-Type", "application/json")

	if want.Token {
		w.Header().Set("X-Subject-Token", "TOKEN")
	}

	w.WriteHeader(want.Status)
	_, _ = w.Write(want.Answer) // whoever asked may be gone
}

// tree reads a body, so that the order of its keys does not count.
func tree(t *testing.T, body []byte) any {
	t.Helper()

	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}

	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("a body that is no JSON: %v", err)
	}

	return v
}
