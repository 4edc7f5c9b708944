package api_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"trainyard/internal/api"
)

// server answers as it is set to and counts who asks.
type server struct {
	*httptest.Server
	problem atomic.Pointer[string] // code of the error that it answers with; nil for success
	list    atomic.Pointer[string] // header with all servers
	asked   atomic.Int64
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)

		if list := s.list.Load(); list != nil {
			w.Header().Set(api.HeaderServers, *list)
		}

		if code := s.problem.Load(); code != nil {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"status":503,"title":"x","detail":"not now","kind":"unavailable","code":"` + *code + `"}`))

			return
		}

		_, _ = w.Write([]byte(`{"version":"1"}`))
	}))
	t.Cleanup(s.Close)

	return s
}

func (s *server) fails(code string) { s.problem.Store(&code) }

func TestAClientFindsTheLeader(t *testing.T) {
	t.Parallel()
	first, second := newServer(t), newServer(t)
	all := first.URL + ", " + second.URL
	first.list.Store(&all)

	var learned []string
	c := api.NewClient(first.URL, "", nil)
	c.UseServers(nil, func(list []string) { learned = list })

	if _, err := c.Info(t.Context()); err != nil {
		t.Fatal(err)
	}

	if want := slices.Sorted(slices.Values(strings.Split(all, ", "))); !slices.Equal(learned, want) {
		t.Errorf("learned %v, want %v", learned, want)
	}

	// A server that is down, and one that does not lead.
	first.Close()

	if _, err := c.Info(t.Context()); err != nil || second.asked.Load() != 1 {
		t.Errorf("got %v, the second was asked %d times", err, second.asked.Load())
	}

	if c.Base() != second.URL {
		t.Errorf("it goes on with %s, want %s", c.Base(), second.URL)
	}
}

// A request that may have taken effect is made again only if that is safe.
func TestAClientRepeatsOnlyWhatIsSafe(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name, code, key string
		again           bool
	}{
		{"nothing was done", api.CodeNotLeader, "", true},
		{"it may have been done", api.CodeLostLead, "", false},
		{"it may have been done, with a key", api.CodeLostLead, "k", true},
		{"forwarded without an answer", api.CodeLeaderSilent, "", false},
		{"forwarded without an answer, with a key", api.CodeLeaderSilent, "k", true},
		{"the store is down", "store_down", "k", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			first, second := newServer(t), newServer(t)
			first.fails(c.code)
			client := api.NewClient(first.URL, "", nil)
			client.UseServers([]string{first.URL, second.URL}, func([]string) {})

			_, err := client.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, c.key)
			if again := second.asked.Load() == 1 && err == nil; again != c.again {
				t.Errorf("made again: %t (%v), want %t", again, err, c.again)
			}
		})
	}
}

func TestAClientOfOneServerDoesNotWait(t *testing.T) {
	t.Parallel()
	only := newServer(t)
	only.list.Store(&only.URL)
	c := api.NewClient(only.URL, "", nil)
	c.UseServers(nil, func(list []string) { t.Errorf("learned %v", list) })

	if _, err := c.Info(t.Context()); err != nil {
		t.Fatal(err)
	}

	only.fails(api.CodeNotLeader)

	if _, err := c.Info(t.Context()); err == nil || only.asked.Load() != 2 {
		t.Errorf("got %v after %d requests", err, only.asked.Load())
	}
}
