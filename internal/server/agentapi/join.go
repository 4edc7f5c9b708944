package agentapi

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"strings"
	"unicode"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// joinInput is the request of a machine that wants to be a node.
type joinInput struct {
	Agent string `header:"Trainyard-Agent" doc:"which process of which machine asks"`
	Body  api.JoinRequest
}

func (s *Server) join(ctx context.Context, in *joinInput) (*httpapi.Body[api.JoinReply], error) {
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
		return nil, httpapi.ToProblem(err)
	}

	in.Body.Inventory.Restores = in.Body.Capability >= restoresCapability
	in.Body.Inventory.Suspends = in.Body.Capability >= suspendsCapability
	in.Body.Inventory.SingleUser = in.Body.Inventory.RequiresSingleUser()
	in.Body.Inventory.Secrets = in.Body.Capability >= secretsCapability
	name := nodeName(in.Body.Name)

	agent, err := api.ParseAgent(in.Agent)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	// What the CA will not sign must not cost a use of the token, so it is tried first.
	if _, _, err := s.CA.SignNode([]byte(in.Body.CSR), id.Node(name), s.NodeCertTTL, now); err != nil {
		return nil, s.fail(ctx, err)
	}

	record := httpapi.RecordOf(ctx)
	record.Actor, record.Token = "token/"+string(t.ID), t.ID
	answer, err := s.do(ctx, yardmaster.From{
		Message: yardmaster.Join{Token: t.ID, Name: name, Key: key, Inventory: in.Body.Inventory, Agent: agent},
		Origin:  yardmaster.Origin{Actor: record.Actor, Token: t.ID, Address: record.Address},
	})
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

		reply.Notice = y.KnownMachine(n.ID, agent)
	})

	return &httpapi.Body[api.JoinReply]{Body: reply}, err
}

func (s *Server) renew(ctx context.Context, in *httpapi.Body[api.RenewRequest]) (*httpapi.Body[api.RenewReply], error) {
	who := callerOf(ctx)
	if who.leaf == nil {
		return nil, s.fail(ctx, fault.New(fault.Unavailable, "certificate_not_forwarded",
			"the server that forwards this request is of an earlier version").WithRemedy("try again later"))
	}
	if err := auth.CheckRenewal(who.leaf, []byte(in.Body.CSR), in.Body.Proof); err != nil {
		return nil, s.fail(ctx, err)
	}

	cert, expires, err := s.CA.SignNode([]byte(in.Body.CSR), who.node, s.NodeCertTTL, s.Clock.Now())
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	next, err := auth.DescribePEM(cert)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	record := httpapi.RecordOf(ctx)

	_, err = s.do(ctx, yardmaster.From{
		Message: yardmaster.RenewNode{Node: who.node, Old: *who.shown, New: next},
		Origin:  yardmaster.Origin{Actor: record.Actor, Address: record.Address},
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.RenewReply]{Body: api.RenewReply{Certificate: string(cert), Expires: expires}}, nil
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

// Bounds of the words about a problem of a node, in bytes.
const (
	maxCause  = 64
	maxReason = 2000
)

// maxWord bounds each text of an inventory that names something, in bytes.
const maxWord = 256

// checkWords refuses texts that are too long to be names, or that nobody should print.
func checkWords(bad func(string, ...any) error, words ...string) error {
	for _, w := range words {
		if len(w) > maxWord || strings.ContainsFunc(w, unicode.IsControl) {
			return bad("a text of an inventory must have at most %d bytes and no control characters, got %.40q", maxWord, w)
		}
	}

	return nil
}

// checkInventory refuses what the tables cannot hold.
func checkInventory(inv *fleet.Inventory) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "bad_inventory", format, args...).WithField("inventory")
	}
	if err := checkWords(bad, inv.Address, inv.OS, inv.Kernel, inv.Arch, inv.Version); err != nil {
		return err
	}
	if err := checkWords(bad, inv.Addresses...); err != nil {
		return err
	}
	if err := fleet.CheckTopology(inv.Topology); err != nil {
		return bad("topology %v", err)
	}
	if err := fleet.CheckLabels(inv.Labels); err != nil {
		return bad("labels %v", err)
	}
	if len(inv.Addresses) > job.MaxAddresses {
		return bad("a node can have at most %d addresses", job.MaxAddresses)
	}
	if len(inv.Limits) > maxReason || len(inv.Draw) > fleet.MaxGPUs+1 {
		return bad("limits must have at most %d bytes, and draw_w one number for each count of GPUs", maxReason)
	}
	if inv.CPUs < 0 || inv.Memory < 0 || inv.Disk < 0 {
		return bad("resources of a node must not be negative")
	}
	if len(inv.GPUs) > fleet.MaxGPUs {
		return bad("a node can have at most %d GPUs", fleet.MaxGPUs)
	}

	if p := inv.Problem; p != nil && (p.Cause == "" || len(p.Cause) > maxCause || len(p.Reason) > maxReason) {
		return bad("the cause of a problem must have 1 to %d bytes and its reason at most %d", maxCause, maxReason)
	}

	if inv.Isolation != "" && !slices.Contains(fleet.Isolations(), inv.Isolation) || len(inv.Metadata) > maxReason {
		return bad("isolation must be one of %v, and what is said of metadata have at most %d bytes",
			fleet.Isolations(), maxReason)
	}

	seen := map[int]bool{}
	for _, g := range inv.GPUs {
		if g.Index < 0 || g.Index >= fleet.MaxGPUs || seen[g.Index] || g.Memory < 0 {
			return bad("GPU %d is listed twice or out of range", g.Index)
		}

		seen[g.Index] = true

		if err := checkWords(bad, g.UUID, g.Model, g.Driver); err != nil {
			return err
		}
		if len(g.Error) > maxReason || len(g.Health) > maxReason {
			return bad("error and health of a GPU must have at most %d bytes", maxReason)
		}
	}

	return checkShared(inv, bad)
}

// publicKey returns the encoded public key of a certificate request.
func publicKey(der []byte) ([]byte, error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, err
	}

	return x509.MarshalPKIXPublicKey(csr.PublicKey)
}
