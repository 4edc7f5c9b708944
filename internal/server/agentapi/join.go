package agentapi

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"strings"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) join(ctx context.Context, in *httpapi.Body[api.JoinRequest]) (*httpapi.Body[api.JoinReply], error) {
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

	return &httpapi.Body[api.JoinReply]{Body: reply}, err
}

func (s *Server) renew(ctx context.Context, in *httpapi.Body[api.RenewRequest]) (*httpapi.Body[api.RenewReply], error) {
	n := nodeOf(ctx)
	cert, expires, err := s.CA.SignNode([]byte(in.Body.CSR), n, s.NodeCertTTL, s.Clock.Now())
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

	if p := inv.Problem; p != nil && (p.Cause == "" || len(p.Cause) > maxCause || len(p.Reason) > maxReason) {
		return bad("the cause of a problem must have 1 to %d bytes and its reason at most %d", maxCause, maxReason)
	}

	if inv.Isolation != "" && !slices.Contains(fleet.Isolations(), inv.Isolation) {
		return bad("isolation must be one of %v", fleet.Isolations())
	}

	seen := map[int]bool{}
	for _, g := range inv.GPUs {
		if g.Index < 0 || g.Index >= fleet.MaxGPUs || seen[g.Index] || g.Memory < 0 {
			return bad("GPU %d is listed twice or out of range", g.Index)
		}

		seen[g.Index] = true
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
