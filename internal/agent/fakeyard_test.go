package agent_test

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

type rankKey struct {
	run  id.Run
	rank int
}

// shelf is the output that the yard holds of one rank.
type shelf struct {
	data  []byte
	final bool
}

// fakeYard is a server that speaks the agents' contract over real TLS, keeps
// what it is told, and can be made to fail.
type fakeYard struct {
	t     *testing.T
	ca    *auth.CA
	token string
	addr  string
	ttl   time.Duration // of the certificates it signs
	clk   *handClock

	mu       sync.Mutex
	changed  chan struct{} // closed at the next change
	server   *http.Server
	serving  sync.WaitGroup
	serverID string
	gen      uint64
	runs     []api.Assignment
	under    *api.Incarnation
	silent   bool // streams bring nothing new
	mutes    bool // it takes from reports which ranks have printed nothing, and says when it has all of a log
	uploads  int  // of output
	streams  int
	joins    int
	renewals int
	agents   map[string]map[string]bool // the headers that say who asks, by path
	reports  []api.Report
	logs     map[rankKey]*shelf
	files    map[string][]byte
	fetches  map[string]int
	lease    time.Duration
	left     *int64           // seconds that the machine's lease still holds, nil if it is not provisioned
	release  []api.GPURelease // what operators have let out of quarantine
	purge    []job.DataCopy   // what the node may not keep
	measured []api.MetricsReport
	outputs  []api.NewOutputs
	// meddle, if set, is asked before and after each request is carried out; if
	// it says so the connection is cut there.
	meddle  func(when, path string) bool
	refuse  func(path string) int // status to answer with instead, 0 for none
	servers []string              // addresses that it names
	standby bool                  // it says that another server may take over
	code    string                // of the errors that refuse makes; "meddled" if left out
	shelf   chunkShelf
}

func newYard(t *testing.T) *fakeYard {
	t.Helper()
	ca, err := auth.OpenCA(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}

	return newServer(t, ca)
}

// newServer is a server of the yard of this CA.
func newServer(t *testing.T, ca *auth.CA) *fakeYard {
	t.Helper()

	secret, err := auth.Mint(tenant.JoinToken, rand.Reader, ca.Hash())
	if err != nil {
		t.Fatal(err)
	}

	y := &fakeYard{
		t:        t,
		ca:       ca,
		token:    secret.Text,
		ttl:      24 * time.Hour,
		clk:      &handClock{},
		changed:  make(chan struct{}),
		serverID: "s1",
		lease:    time.Minute,
		logs:     map[rankKey]*shelf{},
		files:    map[string][]byte{},
		agents:   map[string]map[string]bool{},
		fetches:  map[string]int{},
	}

	y.start("")
	t.Cleanup(y.stop)

	return y
}

// start opens the yard's port; the first time any, later the same.
func (y *fakeYard) start(addr string) {
	y.t.Helper()
	identity, err := y.ca.NewServerIdentity([]string{"127.0.0.1"}, y.clk)
	if err != nil {
		y.t.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /agent/v1/join", y.join)
	mux.HandleFunc("POST /agent/v1/renew", y.renew)
	mux.HandleFunc("GET /agent/v1/assignments", y.assignments)
	mux.HandleFunc("POST /agent/v1/reports", y.report)
	mux.HandleFunc("POST /agent/v1/logs/{run}/{rank}", y.upload)
	mux.HandleFunc("GET /agent/v1/files/{digest}", y.file)
	mux.HandleFunc("POST /agent/v1/metrics", y.measure)
	y.chunkRoutes(mux)
	server := &http.Server{TLSConfig: y.ca.ServerTLS(identity), Handler: y.between(mux), ErrorLog: discardLog()}

	listener, err := listen(addr)
	if err != nil {
		y.t.Fatal(err)
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	y.server, y.addr = server, listener.Addr().String()
	y.serving.Go(func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			y.t.Error(err)
		}
	})
}

// listen opens a port; with no address any below those that the kernel gives to
// outgoing connections, so that the yard finds it free when it starts again. Free
// it is once no child process holds it that was forked before it was closed and
// has not called exec yet.
func listen(addr string) (net.Listener, error) {
	for tries := 0; addr != ""; tries++ {
		listener, err := net.Listen("tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || tries == 600 {
			return listener, err
		}

		time.Sleep(50 * time.Millisecond)
	}

	for tries := 0; ; tries++ {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+mathrand.IntN(15000)))
		if err == nil || tries == 100 {
			return listener, err
		}
	}
}

// stop closes the port and every connection, as a killed server does.
func (y *fakeYard) stop() {
	y.mu.Lock()
	server := y.server
	y.server = nil
	y.mu.Unlock()

	if server == nil {
		return
	}

	if err := server.Close(); err != nil {
		y.t.Error(err)
	}

	y.serving.Wait()
}

// restart is what a new process does: it counts its assignments anew.
func (y *fakeYard) restart() {
	y.stop()
	y.mu.Lock()
	y.serverID += "x"
	y.gen = 1
	addr := y.addr
	y.mu.Unlock()
	y.start(addr)
}

func (y *fakeYard) url() string { return "https://" + y.addr }

// between lets the test meddle.
func (y *fakeYard) between(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		y.mu.Lock()
		meddle, refuse, code := y.meddle, y.refuse, cmp.Or(y.code, "meddled")
		place := r.URL.Path[:strings.LastIndex(r.URL.Path, "/")]
		if y.agents[place] == nil {
			y.agents[place] = map[string]bool{}
		}

		y.agents[place][r.Header.Get(api.AgentHeader)] = true
		y.mu.Unlock()

		if refuse != nil {
			if status := refuse(r.URL.Path); status != 0 {
				kind := map[int]string{503: "unavailable", 403: "denied", 409: "conflict", 404: "not_found", 500: "internal", 429: "over_limit"}[status]
				w.WriteHeader(status)
				answer(w, api.Problem{Status: status, Kind: kind, Code: code, Detail: "refused by the test"})

				return
			}
		}

		if meddle != nil && meddle("before", r.URL.Path) {
			panic(http.ErrAbortHandler)
		}

		if meddle != nil && r.Method == http.MethodPost {
			// Carried out, and then perhaps the answer is lost.
			held := &heldAnswer{header: http.Header{}}
			next.ServeHTTP(held, r)

			if meddle("after", r.URL.Path) {
				panic(http.ErrAbortHandler)
			}

			held.copyTo(w)

			return
		}

		next.ServeHTTP(w, r)
	})
}

type heldAnswer struct {
	header http.Header
	status int
	body   strings.Builder
}

func (h *heldAnswer) Header() http.Header         { return h.header }
func (h *heldAnswer) WriteHeader(status int)      { h.status = status }
func (h *heldAnswer) Write(p []byte) (int, error) { return h.body.Write(p) }
func (h *heldAnswer) copyTo(w http.ResponseWriter) {
	if h.status != 0 {
		w.WriteHeader(h.status)
	}

	_, _ = io.WriteString(w, h.body.String())
}

func answer(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) }

// change applies fn and wakes those who wait.
func (y *fakeYard) change(fn func()) {
	y.mu.Lock()
	defer y.mu.Unlock()

	fn()
	close(y.changed)
	y.changed = make(chan struct{})
}

// assign sets what the node shall run.
func (y *fakeYard) assign(runs ...api.Assignment) {
	y.change(func() {
		y.gen++
		y.runs = runs
	})
}

// await waits until ok holds; ok is called under the yard's lock.
func (y *fakeYard) await(what string, ok func() bool) {
	y.t.Helper()
	limit, cancel := context.WithTimeout(y.t.Context(), 5*time.Minute)
	defer cancel()

	look := func() (bool, chan struct{}) {
		y.mu.Lock()
		defer y.mu.Unlock() // also if ok panics: the yard must stop then

		return ok(), y.changed
	}

	for {
		done, changed := look()
		if done {
			return
		}

		select {
		case <-changed:
		case <-limit.Done():
			y.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// awaitOutput waits until all output of rank 0 of a run has arrived.
func (y *fakeYard) awaitOutput(run id.Run) {
	y.t.Helper()
	y.await("all output of "+string(run), func() bool {
		s := y.logs[rankKey{run, 0}]
		return s != nil && s.final
	})
}

// last is the newest report about a rank; call it under the lock.
func (y *fakeYard) last(run id.Run) (api.RankReport, bool) {
	for i := len(y.reports) - 1; i >= 0; i-- {
		for _, r := range y.reports[i].Ranks {
			if r.Run == run {
				return r, true
			}
		}
	}

	return api.RankReport{}, false
}

func (y *fakeYard) awaitState(run id.Run, state job.RunState) api.RankReport {
	y.t.Helper()
	var got api.RankReport
	y.await(fmt.Sprintf("%s to be %s", run, state), func() bool {
		r, ok := y.last(run)
		got = r
		return ok && r.State == state
	})

	return got
}

func (y *fakeYard) join(w http.ResponseWriter, r *http.Request) {
	var req api.JoinRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Token != y.token {
		w.WriteHeader(http.StatusForbidden)
		answer(w, api.Problem{Kind: "denied", Code: "token_invalid", Detail: "the token is not known here"})
		return
	}

	cert, expires, err := y.ca.SignNode([]byte(req.CSR), id.Node(req.Name), y.ttl, y.clk.Now())
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		answer(w, api.Problem{Kind: "invalid", Code: "csr", Detail: err.Error()})
		return
	}

	var left *int64
	y.change(func() {
		y.joins++
		left = y.left
	})

	answer(
		w,
		api.JoinReply{
			Capability:  api.Capability,
			Node:        id.Node(req.Name),
			Certificate: string(cert),
			CA:          string(y.ca.PEM()),
			Expires:     expires,
			LeaseLeft:   left,
		},
	)
}

// known refuses callers without a node's certificate.
func (y *fakeYard) known(w http.ResponseWriter, r *http.Request) bool {
	if _, err := y.ca.NodeOf(r.TLS, y.clk.Now()); err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		answer(w, api.Problem{Kind: "unknown_user", Code: "node", Detail: err.Error()})
		return false
	}

	return true
}

func (y *fakeYard) renew(w http.ResponseWriter, r *http.Request) {
	if !y.known(w, r) {
		return
	}

	var req api.RenewRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		panic(http.ErrAbortHandler)
	}

	node, _ := y.ca.NodeOf(r.TLS, y.clk.Now())
	cert, expires, err := y.ca.SignNode([]byte(req.CSR), node, 24*time.Hour, y.clk.Now())
	if err != nil {
		panic(http.ErrAbortHandler)
	}

	y.change(func() { y.renewals++ })
	answer(w, api.RenewReply{Certificate: string(cert), Expires: expires})
}

func (y *fakeYard) assignments(w http.ResponseWriter, r *http.Request) {
	if !y.known(w, r) {
		return
	}

	y.change(func() { y.streams++ })
	control := http.NewResponseController(w)

	for sent := uint64(0); ; {
		y.mu.Lock()
		as := api.Assignments{Server: y.serverID, Generation: y.gen, Runs: y.runs, Incarnation: y.under}
		changed, silent := y.changed, y.silent
		y.mu.Unlock()

		if sent == 0 || as.Generation > sent && !silent {
			sent = max(as.Generation, 1)
			text, err := json.Marshal(as)
			if err != nil {
				panic(http.ErrAbortHandler)
			}

			if _, err := fmt.Fprintf(w, ": hello\ndata: %s\n\n", text); err != nil || control.Flush() != nil {
				return
			}
		}

		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (y *fakeYard) report(w http.ResponseWriter, r *http.Request) {
	if !y.known(w, r) {
		return
	}

	var req api.Report
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		panic(http.ErrAbortHandler)
	}

	y.change(func() { y.reports = append(y.reports, req) })
	y.mu.Lock()

	reply := api.ReportReply{
		Release:    y.release,
		Purge:      y.purge,
		Interval:   job.Duration(50 * time.Millisecond),
		Lease:      job.Duration(y.lease),
		Generation: y.gen,
		LeaseLeft:  y.left,
		Server:     y.serverID,
		Servers:    y.servers,
		Standby:    y.standby,
		Silent:     y.mutes,
	}

	y.mu.Unlock()
	answer(w, reply)
}

func (y *fakeYard) upload(w http.ResponseWriter, r *http.Request) {
	if !y.known(w, r) {
		return
	}

	var body io.Reader = r.Body

	if r.Header.Get("Content-Encoding") == "gzip" {
		packed, err := gzip.NewReader(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}

		body = packed
	}

	data, err := io.ReadAll(body)
	offset, err2 := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)

	rank, err3 := strconv.Atoi(r.PathValue("rank"))
	if errors.Join(err, err2, err3) != nil {
		panic(http.ErrAbortHandler)
	}

	if len(data) > api.MaxLogChunk {
		y.t.Errorf("an upload of %d bytes", len(data))
	}

	k := rankKey{id.Run(r.PathValue("run")), rank}
	if !y.isRun(k, id.UID(r.URL.Query().Get("uid"))) {
		w.WriteHeader(http.StatusConflict)
		answer(w, api.Problem{Kind: "conflict", Code: api.CodeOtherRun, Detail: "another run"})

		return
	}

	var reply api.LogReply
	y.change(func() {
		y.uploads++
		s := y.logs[k]
		if s == nil {
			s = &shelf{}
			y.logs[k] = s
		}

		if offset == int64(len(s.data)) {
			if s.final && len(data) > 0 {
				y.t.Errorf("%v: output after the final piece", k)
			}

			s.data = append(s.data, data...)
			s.final = s.final || r.URL.Query().Get("final") == "true"
		}

		reply = api.LogReply{Offset: int64(len(s.data)), Ended: s.final && y.mutes}
	})

	answer(w, reply)
}

// isRun reports whether an upload is of the run that is assigned, if it is.
func (y *fakeYard) isRun(k rankKey, uid id.UID) bool {
	y.mu.Lock()
	defer y.mu.Unlock()

	for _, a := range y.runs {
		if a.Run == k.run && a.Rank == k.rank {
			return a.Launch.UID == uid
		}
	}

	return true
}

func (y *fakeYard) file(w http.ResponseWriter, r *http.Request) {
	if !y.known(w, r) {
		return
	}

	digest := r.PathValue("digest")
	y.mu.Lock()
	data, ok := y.files[digest]
	y.fetches[digest]++
	y.mu.Unlock()

	if !ok {
		w.WriteHeader(http.StatusNotFound)
		answer(w, api.Problem{Kind: "not_found", Code: "file", Detail: "no such file"})
		return
	}

	_, _ = w.Write(data)
}
