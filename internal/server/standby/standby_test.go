package standby_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/clock"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/server/standby"
)

// house is a CA, a leader that says what it was asked, and a standby in front of it.
type house struct {
	ca      *auth.CA
	leader  *server
	standby *server
	noOne   bool // no server leads
	loading bool
	stored  bool // the store can answer
}

func newHouse(t *testing.T, answer http.HandlerFunc) *house {
	t.Helper()
	ca, err := auth.OpenCA(filepath.Join(t.TempDir(), "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}

	h := &house{ca: ca}
	h.leader = h.serve(t, answer)
	h.standby = h.serve(t, standby.New(standby.Config{
		Name: "standby-1", CA: ca, Clock: clock.Wall{}, Log: slog.New(slog.DiscardHandler),
		Leader: func() string {
			if h.noOne {
				return ""
			}

			return h.leader.URL
		},
		Loading: func() bool { return h.loading },
		Metrics: http.NotFoundHandler(),
		Reads: func(w http.ResponseWriter, _ *http.Request) bool {
			if h.stored {
				_, _ = io.WriteString(w, "from the store")
			}

			return h.stored
		},
	}))

	return h
}

// server serves with the yard's own certificates, which httptest cannot.
type server struct {
	*http.Server
	URL string
}

func (h *house) serve(t *testing.T, handler http.Handler) *server {
	t.Helper()
	identity, err := h.ca.NewServerIdentity([]string{"127.0.0.1"}, clock.Wall{})
	if err != nil {
		t.Fatal(err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	s := &server{URL: "https://" + listener.Addr().String(), Server: &http.Server{
		Handler: handler, TLSConfig: h.ca.ServerTLS(identity), ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)

		_ = s.ServeTLS(listener, "", "") // it is closed in the end
	}()

	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})

	return s
}

// client calls with a TLS configuration.
func client(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)

	return &http.Client{Transport: transport}
}

func (h *house) person(t *testing.T) *http.Client {
	t.Helper()
	config, err := auth.PinnedTLS(h.ca.PEM())
	if err != nil {
		t.Fatal(err)
	}

	return client(t, config)
}

func (h *house) node(t *testing.T, name string) *http.Client {
	t.Helper()
	identity, err := auth.NewNodeIdentity(h.ca.PEM())
	if err != nil {
		t.Fatal(err)
	}

	csr, err := identity.CSR(name)
	if err != nil {
		t.Fatal(err)
	}

	cert, _, err := h.ca.SignNode(csr, "north", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	if err := identity.Install(cert); err != nil {
		t.Fatal(err)
	}

	return client(t, identity.TLS())
}

// ask makes a request and returns status and body.
func ask(t *testing.T, c *http.Client, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}

	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	return resp.StatusCode, string(text)
}

// echo says what arrived at the leader.
func echo(ca **auth.CA) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"method": r.Method, "path": r.URL.RequestURI(), "body": string(body), "token": r.Header.Get("Authorization"),
			"node": r.Header.Get(httpapi.HeaderNode), "from": r.Header.Get(httpapi.HeaderForwarded),
			"peer": (*ca).IsPeer(r.TLS, time.Now()),
		})
	}
}

func TestRequestsAreForwardedWithTheCallersIdentity(t *testing.T) {
	t.Parallel()
	var ca *auth.CA
	h := newHouse(t, echo(&ca))
	ca = h.ca

	decode := func(text string) map[string]any {
		out := map[string]any{}
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v: %s", err, text)
		}

		return out
	}

	_, text := ask(t, h.person(t), http.MethodPost, h.standby.URL+"/api/v1/jobs?x=1", "the job",
		"Authorization", "Bearer tya_1", httpapi.HeaderNode, "north")
	got := decode(text)

	if got["method"] != "POST" || got["path"] != "/api/v1/jobs?x=1" || got["body"] != "the job" ||
		got["token"] != "Bearer tya_1" || got["from"] != "standby-1" || got["peer"] != true {
		t.Errorf("the leader was asked %v", got)
	}

	if got["node"] != "" {
		t.Errorf("a person passes for the node %v", got["node"])
	}

	_, text = ask(t, h.node(t, "north"), http.MethodPost, h.standby.URL+"/agent/v1/reports", "{}", httpapi.HeaderNode, "south")
	if got := decode(text); got["node"] != "north" {
		t.Errorf("the node north arrives as %v", got["node"])
	}
}

// A node's certificate does not make its holder a server.
func TestOnlyServersAreTakenAtTheirWord(t *testing.T) {
	t.Parallel()
	var ca *auth.CA
	h := newHouse(t, echo(&ca))
	ca = h.ca

	for name, c := range map[string]*http.Client{"a node": h.node(t, "north"), "a person": h.person(t)} {
		if _, text := ask(t, c, http.MethodGet, h.leader.URL+"/x", ""); strings.Contains(text, `"peer":true`) {
			t.Errorf("%s passes for a server: %s", name, text)
		}
	}
}

func TestAForwardedRequestIsNotForwardedAgain(t *testing.T) {
	t.Parallel()
	asked := false
	h := newHouse(t, func(http.ResponseWriter, *http.Request) { asked = true })
	status, text := ask(t, client(t, h.ca.PeerTLS(clock.Wall{})), http.MethodPost, h.standby.URL+"/api/v1/jobs", "{}",
		httpapi.HeaderForwarded, "standby-2")

	if status != http.StatusServiceUnavailable || !strings.Contains(text, api.CodeNotLeader) || asked {
		t.Errorf("got %d %s, the leader was asked: %t", status, text, asked)
	}
}

func TestAStreamPassesAsItComes(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	h := newHouse(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "line\n")
			_ = http.NewResponseController(w).Flush()
			<-next // the next one comes only after this one has arrived
		}
	})

	resp, err := h.person(t).Get(h.standby.URL + "/api/v1/events/follow")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = resp.Body.Close() }()

	lines := bufio.NewScanner(resp.Body)
	for range 3 {
		if !lines.Scan() || lines.Text() != "line" {
			t.Fatalf("got %q, %v", lines.Text(), lines.Err())
		}

		next <- struct{}{}
	}
}

func TestAStandbyWithoutALeader(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(http.ResponseWriter, *http.Request) { t.Error("the leader was asked") })
	h.noOne = true
	c := h.person(t)

	if status, text := ask(t, c, http.MethodGet, h.standby.URL+"/readyz", ""); status != http.StatusServiceUnavailable ||
		text != "not ready: standby, and no server leads now\n" {
		t.Errorf("readyz says %d %q", status, text)
	}

	h.loading = true

	if _, text := ask(t, c, http.MethodGet, h.standby.URL+"/readyz", ""); text != "not ready: loading the yard\n" {
		t.Errorf("readyz says %q", text)
	}

	if status, text := ask(t, c, http.MethodPost, h.standby.URL+"/api/v1/jobs", "{}"); status !=
		http.StatusServiceUnavailable || !strings.Contains(text, api.CodeNotLeader) {
		t.Errorf("a write gets %d %s", status, text)
	}

	h.stored = true

	if status, text := ask(t, c, http.MethodGet, h.standby.URL+"/api/v1/jobs", ""); status != http.StatusOK ||
		text != "from the store" {
		t.Errorf("a read gets %d %s", status, text)
	}
}

func TestALeaderThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(http.ResponseWriter, *http.Request) {})
	c := h.person(t)

	if _, text := ask(t, c, http.MethodGet, h.standby.URL+"/readyz", ""); text != "standby, leader is "+h.leader.URL+"\n" {
		t.Errorf("readyz says %q", text)
	}

	_ = h.leader.Close()

	if status, text := ask(t, c, http.MethodPost, h.standby.URL+"/api/v1/jobs", "{}"); status !=
		http.StatusServiceUnavailable || !strings.Contains(text, api.CodeLeaderSilent) {
		t.Errorf("a write gets %d %s", status, text)
	}

	h.stored = true

	if _, text := ask(t, c, http.MethodGet, h.standby.URL+"/api/v1/jobs", ""); text != "from the store" {
		t.Errorf("a read gets %s", text)
	}
}

// Tunnels go through a standby like any request: of people, and of nodes, whose name is passed on.
func TestAStandbyForwardsTunnels(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // the client says so
		}

		tunnel := api.NewTunnel(conn)
		_ = tunnel.Copy(r.Context(), api.StreamOut, strings.NewReader(r.Header.Get(httpapi.HeaderNode)+"@"+r.URL.Path))
		_ = tunnel.Finish()
	})

	for want, c := range map[string]*http.Client{
		"@/api/v1/jobs/j1/tunnel": h.person(t), "north@/api/v1/jobs/j1/tunnel": h.node(t, "north"),
	} {
		conn, _, err := websocket.Dial(t.Context(), h.standby.URL+"/api/v1/jobs/j1/tunnel",
			&websocket.DialOptions{HTTPClient: c})
		if err != nil {
			t.Fatal(err)
		}

		tunnel := api.NewTunnel(conn)

		m, err := tunnel.Receive(t.Context())
		if err != nil || string(m.Data) != want {
			t.Errorf("through the standby came %q, %v, not %q", m.Data, err, want)
		}

		_ = tunnel.Close()
	}
}
