package server

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) agentRoutes() {
	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "join",
			Method:      http.MethodPost,
			Path:        "/agent/v1/join",
			Summary:     "Join the yard as a node",
			Tags:        []string{"agent"},
		},
		s.join,
	)

	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "renew",
			Method:      http.MethodPost,
			Path:        "/agent/v1/renew",
			Summary:     "Renew the certificate of a node",
			Security:    byNode,
			Tags:        []string{"agent"},
		},
		s.renew,
	)

	huma.Register(
		s.api,
		huma.Operation{
			OperationID:  "report",
			Method:       http.MethodPost,
			Path:         "/agent/v1/reports",
			Summary:      "Report heartbeat and run states of a node",
			Security:     byNode,
			Tags:         []string{"agent"},
			MaxBodyBytes: 16 << 20,
		},
		s.report,
	)

	huma.Register(
		s.api,
		streaming(huma.Operation{
			OperationID: "follow-assignments",
			Method:      http.MethodGet,
			Path:        "/agent/v1/assignments",
			Summary:     "Follow the assignments of a node",
			Description: "Each item is the complete desired state of the node (Assignments).",
			Security:    byNode,
			Tags:        []string{"agent"},
		}),
		s.assignments,
	)

	huma.Register(
		s.api,
		huma.Operation{
			OperationID:  "push-metrics",
			Method:       http.MethodPost,
			Path:         "/agent/v1/metrics",
			Summary:      "Push training metrics",
			Security:     byNode,
			Tags:         []string{"agent"},
			MaxBodyBytes: 16 << 20,
		},
		s.pushMetrics,
	)

	s.plain(
		huma.Operation{
			OperationID: "put-log",
			Method:      http.MethodPost,
			Path:        "/agent/v1/logs/{run}/{rank}",
			Summary:     "Append output of a rank",
			Security:    byNode,
			Tags:        []string{"agent"},
		},
		s.putLog,
	)
}

func (s *Server) join(ctx context.Context, in *body[api.JoinRequest]) (*body[api.JoinReply], error) {
	now := s.Clock.Now()
	t, refused := s.Directory.Check(tenant.JoinToken, in.Body.Token, now)
	if refused != nil && !auth.UsedUp(refused) { // used up perhaps by this very machine, whose answer was lost
		return nil, s.fail(ctx, refused)
	}

	key, err := keyOf(in.Body.CSR)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if err := checkInventory(&in.Body.Inventory); err != nil {
		return nil, toProblem(err)
	}

	name := nodeName(in.Body.Name)

	// What the CA will not sign must not cost a use of the token, so it is tried first.
	if _, _, err := s.CA.SignNode([]byte(in.Body.CSR), id.Node(name), s.NodeCertTTL, now); err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(ctx, yardmaster.Join{Token: t.ID, Name: name, Key: key, Inventory: in.Body.Inventory})
	if err != nil {
		if auth.UsedUp(err) && refused != nil {
			err = refused // says which token
		}

		return nil, s.fail(ctx, err)
	}

	n, _ := answer.(fleet.Node)
	cert, expires, err := s.CA.SignNode([]byte(in.Body.CSR), n.ID, s.NodeCertTTL, now)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	s.Log.InfoContext(ctx, "node joined", "node", n.ID, "class", n.Class)

	reply := api.JoinReply{
		Capability:  api.Capability,
		Node:        n.ID,
		Certificate: string(cert),
		CA:          string(s.CA.PEM()),
		Expires:     expires,
	}

	err = s.Loop.Query(ctx, func(y *yardmaster.Yard) {
		if l := y.Lease(n.Lease); l != nil {
			reply.LeaseLeft = wholeSeconds(l.Ends.Sub(now))
		}
	})

	return &body[api.JoinReply]{reply}, err
}

// keyOf names the key of a certificate request, so that a machine that joins
// again because the answer was lost is recognised.
func keyOf(csr string) (string, error) {
	block, _ := pem.Decode([]byte(csr))
	if block == nil {
		return "", fault.New(fault.Invalid, "bad_csr", "the certificate signing request is not PEM").WithField("csr")
	}

	pub, err := publicKey(block.Bytes)
	if err != nil {
		return "", fault.New(fault.Invalid, "bad_csr", "the certificate signing request cannot be parsed").
			WithField("csr").
			WithCause(err)
	}

	sum := sha256.Sum256(pub)

	return hex.EncodeToString(sum[:]), nil
}

// nodeName makes a name that may be used out of a wished one.
func nodeName(s string) string {
	var out strings.Builder
	for _, c := range strings.ToLower(s) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' {
			out.WriteRune(c)
		} else {
			out.WriteByte('-')
		}
	}

	name := strings.Trim(out.String(), "-._")
	name = strings.Trim(name[:min(len(name), id.MaxName)], "-._")
	if name == "" {
		return "node"
	}

	return name
}

// checkInventory refuses what the tables cannot hold.
func checkInventory(inv *fleet.Inventory) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "bad_inventory", format, args...).WithField("inventory")
	}
	if inv.CPUs < 0 || inv.Memory < 0 || inv.Disk < 0 {
		return bad("resources of a node must not be negative")
	}
	if len(inv.GPUs) > fleet.MaxGPUs {
		return bad("a node can have at most %d GPUs", fleet.MaxGPUs)
	}

	seen := map[int]bool{}
	for _, g := range inv.GPUs {
		if g.Index < 0 || g.Index >= fleet.MaxGPUs || seen[g.Index] || g.Memory < 0 {
			return bad("GPU %d is listed twice or out of range", g.Index)
		}

		seen[g.Index] = true
	}

	return nil
}

func (s *Server) renew(ctx context.Context, in *body[api.RenewRequest]) (*body[api.RenewReply], error) {
	n := nodeOf(ctx)
	cert, expires, err := s.CA.SignNode([]byte(in.Body.CSR), n, s.NodeCertTTL, s.Clock.Now())
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &body[api.RenewReply]{api.RenewReply{Certificate: string(cert), Expires: expires}}, nil
}

func (s *Server) report(ctx context.Context, in *body[api.Report]) (*body[api.ReportReply], error) {
	n := nodeOf(ctx)

	if in.Body.Inventory != nil {
		if err := checkInventory(in.Body.Inventory); err != nil {
			return nil, toProblem(err)
		}
	}

	if err := in.Body.Check(); err != nil {
		return nil, toProblem(err)
	}

	answer, err := s.do(ctx, fromReport(n, &in.Body))
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	reply := api.ReportReply{
		Interval:   job.Duration(s.Interval),
		Lease:      job.Duration(s.Lease),
		Generation: s.Assignments.Generation(n),
		Release:    s.noteReport(n, &in.Body),
	}

	if h, ok := answer.(yardmaster.LeaseRenewal); ok {
		reply.LeaseLeft = wholeSeconds(h.LeaseLeft)
	}

	if len(in.Body.Data) > 0 {
		if err := s.query(ctx, func(y *yardmaster.Yard) { reply.Purge = y.Misplaced(n, in.Body.Data) }); err != nil {
			return nil, s.fail(ctx, err)
		}
	}

	return &body[api.ReportReply]{reply}, nil
}

func wholeSeconds(d time.Duration) *int64 {
	n := int64(max(d, 0) / time.Second)
	return &n
}

func (s *Server) assignments(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	n := nodeOf(ctx)
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		req, w := humago.Unwrap(hc)
		out := newStream(w)

		for {
			removed, err := s.roster.admit(n)
			if err != nil {
				out.send("", "error", toProblem(err))
				return
			}

			orders, generation, changed := s.Assignments.Desired(n)
			if !out.send(strconv.FormatUint(generation, 10), "", s.toAssignments(orders, generation)) {
				return
			}
			if !s.waitAny(req.Context(), out, []<-chan struct{}{changed, removed}) {
				return
			}
		}
	}}, nil
}

// pushMetrics stores the training metrics of the runs of a node. Only rank 0 of a run reports them.
func (s *Server) pushMetrics(ctx context.Context, in *body[api.MetricsReport]) (*body[api.MetricsReply], error) {
	if err := in.Body.Check(); err != nil {
		return nil, toProblem(err)
	}

	for i := range in.Body.Runs {
		if err := s.mayWriteLog(ctx, in.Body.Runs[i].Run, 0); err != nil {
			return nil, s.fail(ctx, err)
		}
	}

	if err := s.seer.Take(ctx, &in.Body); err != nil {
		return nil, s.fail(ctx, err)
	}

	return &body[api.MetricsReply]{api.MetricsReply{Server: s.start}}, nil
}

// maxLogPart bounds one upload of output, unpacked.
const maxLogPart = 8 << 20

func (s *Server) putLog(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	rank, err := strconv.Atoi(r.PathValue("rank"))

	run := id.Run(r.PathValue("run"))
	if _, _, ok := run.Split(); !ok || err != nil {
		return fault.New(fault.NotFound, "run_not_found", "run not found")
	}

	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		return fault.New(fault.Invalid, "bad_offset", "offset must be an integer").WithField("offset")
	}
	if err := s.mayWriteLog(ctx, run, rank); err != nil {
		return err
	}

	content, err := uncompressed(w, r, maxLogPart)
	if err != nil {
		return err
	}

	data, err := io.ReadAll(io.LimitReader(content, maxLogPart+1))
	if err != nil {
		return fault.New(fault.Invalid, "broken_upload", "the upload was interrupted").WithCause(err)
	}
	if len(data) > maxLogPart {
		return fault.New(fault.OverLimit, tooLarge, "an upload must not be larger than %d bytes", maxLogPart)
	}

	size, err := s.Logbook.Append(ctx, run, rank, offset, data, r.URL.Query().Get("final") == "true")
	if err != nil {
		return err
	}

	return writeJSON(w, api.LogReply{Offset: size})
}

// mayWriteLog lets a node write only the output of ranks that were placed on it.
func (s *Server) mayWriteLog(ctx context.Context, run id.Run, rank int) error {
	n := nodeOf(ctx)
	key := archive.Name(run, rank)
	if s.writers.is(key, n) {
		return nil
	}

	r, err := s.Store.Run(ctx, run)
	if err != nil {
		return err
	}
	if rank < 0 || rank >= len(r.Ranks) || r.Ranks[rank].Node != n {
		return fault.New(fault.Denied, "not_your_run", "rank %d of run %s is not on node %s", rank, run, n)
	}

	s.writers.set(key, n)

	return nil
}

// writers remembers which node was found to be allowed to write a log.
type writers struct {
	mu sync.Mutex
	by map[string]id.Node
}

func (w *writers) is(key string, n id.Node) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[key] == n
}

func (w *writers) set(key string, n id.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.by == nil || len(w.by) >= maxWriters {
		w.by = map[string]id.Node{}
	}

	w.by[key] = n
}

// publicKey returns the encoded public key of a certificate request.
func publicKey(der []byte) ([]byte, error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, err
	}

	return x509.MarshalPKIXPublicKey(csr.PublicKey)
}

// maxWriters bounds the memory; past it all are asked for again.
const maxWriters = 50_000
