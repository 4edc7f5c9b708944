package walls_test

import (
	"crypto/tls"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// thief is whoever has copied the key of a node.
type thief struct {
	*user
	identity *auth.NodeIdentity
	client   *http.Client
}

// steal copies the identity of a node.
func (y *yard) steal(t *testing.T, node string) *thief {
	t.Helper()
	copied := filepath.Join(y.Folder, "stolen-"+node)
	original := filepath.Join(y.AgentData(node), "agent", "identity")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", original, copied).CombinedOutput(); err != nil {
		t.Fatalf("copy the identity: %v: %s", err, out)
	}

	identity, err := auth.LoadNodeIdentity(copied)
	must(t, err)

	h := &thief{user: &user{yard: y}, identity: identity}
	h.use(t, identity.TLS())

	return h
}

func (h *thief) use(t *testing.T, config *tls.Config) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	h.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
}

func (h *thief) asNode(t *testing.T, method, path string, body any) answer {
	t.Helper()

	return h.callWith(t, h.client, method, path, body)
}

// TestS03_AStolenKeyIsOfLittleUse uses a copy of a node's key from elsewhere while the node's agent runs.
func TestS03_AStolenKeyIsOfLittleUse(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north")
	h := y.steal(t, "north")

	// It does not speak for the node, whether it says who it is or not.
	refused := func(what string, a answer) {
		t.Helper()

		if a.status != http.StatusConflict || !strings.HasPrefix(a.problem.Code, "agent_") || a.problem.Remedy == "" {
			t.Errorf("%s: %s", what, &a)
		}
	}
	refused("the assignments of others", h.asNode(t, http.MethodGet, "/agent/v1/assignments", nil))
	refused("a report", h.asNode(t, http.MethodPost, "/agent/v1/reports", api.Report{
		Capability: api.Capability, Boot: "x", Seq: 1,
	}))

	csr, err := h.identity.CSR("north")
	must(t, err)
	refused("a renewal", h.asNode(t, http.MethodPost, "/agent/v1/renew", api.RenewRequest{CSR: string(csr)}))

	y.audit(t, "node.copy_refused", func(e *api.Event) bool { return e.Node == "north" && e.Address == "127.0.0.1" })

	if n := y.node(t, "north"); n.State != "idle" {
		t.Errorf("the node is %s (%s)", n.State, n.Reason)
	}
}

// TestS03_ARenewalIsSignedByTheOldKey has a certificate renewed for a key that its owner did not sign, and sees that
// an agent's own renewal ends the certificate before it.
func TestS03_ARenewalIsSignedByTheOldKey(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	// A machine that joins with an old agent, which does not say who it is: whoever has its key is the node.
	identity := y.joinAlone(t, "old", fleet.Inventory{CPUs: 1000, Memory: 1 << 30})
	h := &thief{user: &user{yard: y}, identity: identity}
	h.use(t, identity.TLS())

	other, err := identity.Successor()
	must(t, err)
	csr, err := other.CSR("old")
	must(t, err)

	a := h.asNode(t, http.MethodPost, "/agent/v1/renew", api.RenewRequest{CSR: string(csr)})
	if a.status != http.StatusForbidden || a.problem.Code != "renewal_not_signed" {
		t.Fatalf("a renewal for another key: %s", &a)
	}

	y.audit(t, "access.refused", func(e *api.Event) bool {
		return e.Actor == "node/old" && strings.Contains(e.Reason, "renewal_not_signed")
	})

	proof, err := identity.Prove(csr)
	must(t, err)

	a = h.asNode(t, http.MethodPost, "/agent/v1/renew", api.RenewRequest{CSR: string(csr), Proof: proof})
	if a.status != http.StatusOK {
		t.Fatalf("a renewal that the old key signed: %s", &a)
	}

	renewed := y.audit(t, "node.renewed", func(e *api.Event) bool { return e.Node == "old" })
	if renewed.From == "" || renewed.To == "" || renewed.From == renewed.To || renewed.Address != "127.0.0.1" {
		t.Errorf("the record of the renewal: %+v", renewed)
	}
}

// joinAlone makes a node of a key that this test has.
func (y *yard) joinAlone(t *testing.T, name string, inventory fleet.Inventory) *auth.NodeIdentity {
	t.Helper()
	token := y.joinToken(t)
	parsed, err := auth.Parse(token)
	must(t, err)

	ca, _, err := auth.FetchCA(t.Context(), y.Address, parsed.CAHash)
	must(t, err)

	identity, err := auth.NewNodeIdentity(ca)
	must(t, err)
	csr, err := identity.CSR(name)
	must(t, err)

	client := api.NewClient(y.URL(), "", identity.JoinTLS())
	defer client.Close()

	reply, err := client.Join(t.Context(), api.JoinRequest{
		Capability: api.Capability, Token: token, Name: name, CSR: string(csr), Inventory: inventory,
	})
	must(t, err)
	must(t, identity.Install([]byte(reply.Certificate)))

	return identity
}

// TestS03_DeclaredHardwareWaitsForAnAdmin lets a node declare GPUs that it did not have when it joined, and then refuse
// to give up the job that it got.
func TestS03_DeclaredHardwareWaitsForAnAdmin(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	alice := y.user(t, "alice")
	small := fleet.Inventory{Address: "127.0.0.1", OS: "linux", Arch: "amd64", CPUs: 1000, Memory: 1 << 30}
	identity := y.joinAlone(t, "rogue", small)
	rogue := api.NewClient(y.URL(), "", identity.TLS())
	defer rogue.Close()

	number := uint64(0)
	report := func(inv *fleet.Inventory, ranks ...api.RankReport) error {
		number++
		_, err := rogue.Report(t.Context(), api.Report{ // as an agent of an earlier version, which knows no UIDs
			Capability: 6, Boot: "b", Seq: number, Inventory: inv, Ranks: ranks,
		})

		return err
	}

	large := small
	for i := range 8 {
		large.GPUs = append(large.GPUs, fleet.GPU{Index: i, UUID: id8(i), Model: "NVIDIA H100 80GB HBM3", Memory: 80 << 30})
	}

	must(t, report(&large))

	n := y.node(t, "rogue")
	if n.Problem == nil || n.Problem.Cause != fleet.CauseGrowth || !strings.Contains(n.Problem.Reason, "0 -> 8 GPUs") {
		t.Fatalf("the node that declares more is %+v", n)
	}

	y.audit(t, "node.problem", func(e *api.Event) bool { return e.Node == "rogue" && e.To == fleet.CauseGrowth })

	j := alice.submit(t, "run: train\nresources: {gpu: H100, gpus: 1}\nenv: {WANDB_API_KEY: secret}\n")
	must(t, report(&large))

	if d, err := alice.Job(t.Context(), j); err != nil || d.Epoch != 0 {
		t.Fatalf("the job was sent to the node: %+v, %v", d, err)
	}

	// Once an admin has accepted it the job starts there. The node keeps it, whatever it is told.
	y.admin.must(t, "nodes", "accept", "rogue")
	y.await(t, "the job is on the node", func() bool {
		must(t, report(&large, api.RankReport{Run: id.NewRun(j, 1), State: "running"}))

		d, err := alice.Job(t.Context(), j)
		must(t, err)

		return d.State == "running"
	})

	if r := y.admin.types(t, "nodes", "remove", "-y", "rogue"); r.code == 0 || !strings.Contains(r.err, "--force") {
		t.Errorf("a node with a run is removed: %s", &r)
	}

	y.admin.must(t, "nodes", "rm", "--force", "-y", "rogue")

	if err := report(nil); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("the removed node reports: %v", err)
	}

	d, err := alice.Job(t.Context(), j)
	must(t, err)

	if d.State != "pending" && d.State != "recovering" {
		t.Errorf("the job of the removed node is %s (%s)", d.State, d.Reason)
	}

	y.audit(t, "node.removed", func(e *api.Event) bool { return e.Node == "rogue" && e.Token != "" && e.Address != "" })
}

func id8(i int) string { return "GPU-" + strings.Repeat(string(rune('a'+i)), 8) }
