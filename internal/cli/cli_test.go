package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/cli/contexts"
	"trainyard/internal/tenant"
	goldenfile "trainyard/test/golden"
)

// now is what the commands' clock says.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// buffer may be written from several sides.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{}
}

func newBuffer() *buffer { return &buffer{grew: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	select {
	case b.grew <- struct{}{}:
	default:
	}

	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until the buffer holds a text.
func (b *buffer) await(t *testing.T, text string) {
	t.Helper()

	for !strings.Contains(b.String(), text) {
		select {
		case <-b.grew:
		case <-t.Context().Done():
			t.Fatalf("never saw %q in %q", text, b.String())
		}
	}
}

// yard is a server that speaks the API with canned answers.
type yard struct {
	*httptest.Server
	ca  *auth.CA
	mux *http.ServeMux

	arrays   []api.Array // that it lists
	noArrays bool        // it is of a release without arrays

	mu    sync.Mutex
	calls []string // method, path and query of each call
	body  map[string][]byte
	head  map[string]http.Header
}

func newYard(t *testing.T) *yard {
	t.Helper()
	ca, err := auth.OpenCA(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}

	cert, err := ca.ServerCertificate([]string{"127.0.0.1", "localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	y := &yard{ca: ca, mux: http.NewServeMux(), body: map[string][]byte{}, head: map[string]http.Header{}}
	y.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}

		r.Body = io.NopCloser(bytes.NewReader(body))
		y.mu.Lock()
		y.calls = append(y.calls, r.Method+" "+r.URL.RequestURI())
		y.body[r.Method+" "+r.URL.Path], y.head[r.Method+" "+r.URL.Path] = body, r.Header
		y.mu.Unlock()
		y.mux.ServeHTTP(w, r)
	}))

	y.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	y.EnableHTTP2 = true
	y.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are what some tests are about
	y.StartTLS()
	t.Cleanup(y.Close)

	y.mux.HandleFunc("GET /api/v1/arrays", func(w http.ResponseWriter, _ *http.Request) {
		if y.noArrays {
			reply(w, http.StatusNotFound, noSuchPath)
			return
		}

		reply(w, http.StatusOK, api.ArrayPage{Arrays: y.arrays})
	})

	return y
}

// answer makes the yard answer a call ("GET /api/v1/jobs") with a value.
func (y *yard) answer(pattern string, value any) {
	y.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, value) })
}

// list makes the yard list jobs, those in the states that are asked for.
func (y *yard) list(all ...api.Job) {
	y.mux.HandleFunc("GET /api/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		states := r.URL.Query()["state"]
		page := api.JobPage{}
		for _, j := range all {
			if len(states) == 0 || slices.Contains(states, string(j.State)) {
				page.Jobs = append(page.Jobs, j)
			}
		}

		reply(w, http.StatusOK, page)
	})
}

// refuse makes the yard answer a call with a problem.
func (y *yard) refuse(pattern string, status int, p api.Problem) {
	y.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { reply(w, status, p) })
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)

	if err := json.NewEncoder(w).Encode(value); err != nil {
		panic(err)
	}
}

// feed makes the yard answer a call with server-sent events.
func (y *yard) feed(pattern string, serve func(r *http.Request, send func(kind, id string, data any))) {
	y.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		flush := w.(http.Flusher).Flush
		flush()

		serve(r, func(kind, id string, data any) {
			text, err := json.Marshal(data)
			if err != nil {
				panic(err)
			}

			if kind != "" {
				_, _ = fmt.Fprintf(w, "event: %s\n", kind)
			}

			if id != "" {
				_, _ = fmt.Fprintf(w, "id: %s\n", id)
			}

			_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
			flush()
		})
	})
}

func (y *yard) called() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return append([]string(nil), y.calls...)
}

func (y *yard) sent(call string) ([]byte, http.Header) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.body[call], y.head[call]
}

// person is somebody at a machine.
type person struct {
	env            Env
	stdout, stderr *buffer
	vars           map[string]string
	terminal       bool
}

func newPerson(t *testing.T) *person {
	t.Helper()
	p := &person{stdout: newBuffer(), stderr: newBuffer(), vars: map[string]string{}}
	p.env = Env{
		Stdin:  strings.NewReader(""),
		Stdout: p.stdout,
		Stderr: p.stderr,
		LookupEnv: func(key string) (string, bool) {
			v, ok := p.vars[key]
			return v, ok
		},
		Clock:      still{now},
		Entropy:    rand.NewChaCha8([32]byte{1}),
		Version:    "1.2.3",
		Commit:     "0123456789abcdef",
		GoVersion:  "go1.26.0",
		ConfigDir:  filepath.Join(t.TempDir(), "trainyard"),
		IsTerminal: func(any) bool { return p.terminal },
		Width:      func() int { return 0 },
	}

	return p
}

// at logs the person in to a yard.
func (p *person) at(t *testing.T, y *yard) *person {
	t.Helper()
	file, err := contexts.Load(p.env.ConfigDir)
	if err != nil {
		t.Fatal(err)
	}

	file.Put(contexts.Context{Name: "test", Server: y.URL, User: "ada", Token: accessToken(t), CA: string(y.ca.PEM())})

	if err := file.Save(); err != nil {
		t.Fatal(err)
	}

	return p
}

// types runs a command and returns its exit code.
func (p *person) types(ctx context.Context, args ...string) int {
	return Execute(ctx, p.env, New(p.env), args)
}

func accessToken(t *testing.T) string {
	t.Helper()
	return mint(t, tenant.AccessToken, "")
}

func mint(t *testing.T, kind tenant.TokenKind, hash string) string {
	t.Helper()
	secret, err := auth.Mint(kind, strings.NewReader(strings.Repeat("0123456789", 20)), hash)
	if err != nil {
		t.Fatal(err)
	}

	return secret.Text
}

// golden compares a text with a file under testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	goldenfile.Compare(t, filepath.Join("testdata", name+".golden"), got)
}

func ago(d time.Duration) time.Time { return now.Add(-d) }

func noContent(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
