package server

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/fleet"
	"trainyard/internal/logs/archive"
	"trainyard/internal/server/agentapi"
	"trainyard/internal/yardmaster"
)

// weakCSR is a request of a key that is too weak to stand for a node.
func weakCSR(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}

	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func TestBadRequestsToJoin(t *testing.T) {
	t.Parallel()
	y, n, tokens := badYard(t)
	csr, err := n.identity.CSR("x")
	y.must(err)
	stranger, err := auth.NewNodeIdentity(y.ca.PEM())
	y.must(err)
	strange, err := stranger.CSR("x")
	y.must(err)
	gpu := func(index int) fleet.GPU { return fleet.GPU{Index: index, Memory: 1} }
	tests := []struct {
		name   string
		change func(*api.JoinRequest)
		want   string
	}{
		{
			"a token that is used up",
			func(r *api.JoinRequest) { r.Token, r.CSR = tokens["used up"], string(strange) },
			"401 token_used_up: join token T has already been used up",
		},
		{
			"a token for people",
			func(r *api.JoinRequest) { r.Token = tokens["ada"] },
			"401 token_wrong_kind: a token of kind join is required, got access",
		},
		{"no token", func(r *api.JoinRequest) { r.Token = "" }, "401 token_malformed: the token is empty"},
		{
			"a request that is no PEM",
			func(r *api.JoinRequest) { r.CSR = "hello" },
			"422 bad_csr csr: the certificate signing request is not PEM",
		},
		{
			"a request that holds something else",
			func(r *api.JoinRequest) { r.CSR = string(y.ca.PEM()) },
			"422 bad_csr csr: the certificate signing request cannot be parsed",
		},
		{
			"two requests",
			func(r *api.JoinRequest) { r.CSR += r.CSR },
			"422 csr_invalid: the certificate signing request is not a single PEM block of that type",
		},
		{
			"a weak key",
			func(r *api.JoinRequest) { r.CSR = weakCSR(t) },
			"422 csr_key_weak: the key of the certificate signing request is too weak or of an unsupported type",
		},
		{
			"a request that is too long",
			func(r *api.JoinRequest) { r.CSR = strings.Repeat("x", 16385) },
			"422 bad_request csr: expected length <= 16384",
		},
		{
			"a name that is too long",
			func(r *api.JoinRequest) { r.Name = strings.Repeat("x", 64) },
			"422 bad_request name: expected length <= 63",
		},
		{
			"less than no memory",
			func(r *api.JoinRequest) { r.Inventory.Memory = -1 },
			`422 bad_request: value must be a memory size, got "-1B"; write a number and a unit, e.g. 24GB or 512MB`,
		},
		{
			"more GPUs than can be",
			func(r *api.JoinRequest) { r.Inventory.GPUs = make([]fleet.GPU, fleet.MaxGPUs+1) },
			"422 bad_inventory inventory: a node can have at most 64 GPUs",
		},
		{
			"a GPU twice",
			func(r *api.JoinRequest) { r.Inventory.GPUs = []fleet.GPU{gpu(0), gpu(0)} },
			"422 bad_inventory inventory: GPU 0 is listed twice or out of range",
		},
		{
			"a GPU out of range",
			func(r *api.JoinRequest) { r.Inventory.GPUs = []fleet.GPU{gpu(-1)} },
			"422 bad_inventory inventory: GPU -1 is listed twice or out of range",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := api.JoinRequest{Capability: 1, Token: tokens["join"], Name: "n9", CSR: string(csr), Inventory: someInventory()}
			tt.change(&r)
			body, err := json.Marshal(r)
			y.must(err)
			got := y.raw(y.http, http.MethodPost, "/agent/v1/join", "", string(body))
			text := says(&got.p)
			if i := strings.Index(text, "join token "); i >= 0 {
				text = text[:i] + "join token T" + text[i+len("join token ")+10:]
			}

			if text != tt.want {
				t.Errorf("got\n%s\nwant\n%s", text, tt.want)
			}
		})
	}

	list, err := y.client(tokens["root"]).Tokens(t.Context(), "root", api.Page{})
	y.must(err)

	for _, token := range list.Tokens {
		if token.Kind == "join" && token.UsesLeft != 5 && token.UsesLeft != 0 {
			t.Errorf("a machine that was not let in took a use: %d are left", token.UsesLeft)
		}
	}

	nodes, err := y.client(tokens["root"]).Nodes(t.Context(), api.Page{})
	y.must(err)

	if len(nodes.Nodes) != 1 {
		t.Errorf("machines that were not let in are nodes: %+v", nodes.Nodes)
	}
}

func TestAMachineWhoseAnswerWasLostJoinsAgainByATokenThatIsUsedUp(t *testing.T) {
	t.Parallel()
	y, n, tokens := badYard(t)
	csr, err := n.identity.CSR("x")
	y.must(err)
	reply, err := y.client("").
		Join(t.Context(), api.JoinRequest{Capability: 1, Token: tokens["used up"], Name: "n9", CSR: string(csr),
			Inventory: someInventory()})
	y.must(err)

	if reply.Node != n.identity.Node() {
		t.Errorf("it is node %s now, want %s as before", reply.Node, n.identity.Node())
	}
}

func TestBadRequestsOfAgents(t *testing.T) {
	t.Parallel()
	y, n, _ := badYard(t)
	other := y.join("n2")
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 9 {
		_, err := z.Write(make([]byte, 1<<20))
		y.must(err)
	}

	y.must(z.Close())

	tests := []struct {
		name, method, path string
		with               *http.Client
		body, header       string
		want               string
	}{
		{
			"no certificate",
			"POST",
			"/agent/v1/reports",
			y.http,
			`{"capability":1,"boot":"b","seq":1}`,
			"",
			"401 node_certificate_missing: a node certificate is required",
		},
		{
			"a rank of another node",
			"POST",
			"/agent/v1/logs/j1.1/0?offset=0",
			other.http,
			"x",
			"",
			"403 not_your_run: rank 0 of run j1.1 is not on node n2",
		},
		{
			"a rank that is not there",
			"POST",
			"/agent/v1/logs/j1.1/1?offset=0",
			n.http,
			"x",
			"",
			"403 not_your_run: rank 1 of run j1.1 is not on node n1",
		},
		{
			"a rank below nothing",
			"POST",
			"/agent/v1/logs/j1.1/-1?offset=0",
			n.http,
			"x",
			"",
			"403 not_your_run: rank -1 of run j1.1 is not on node n1",
		},
		{
			"a rank that is no number",
			"POST",
			"/agent/v1/logs/j1.1/first?offset=0",
			n.http,
			"x",
			"",
			"404 run_not_found: run not found",
		},
		{
			"a run that is none",
			"POST",
			"/agent/v1/logs/..%2Fj1.1/0?offset=0",
			n.http,
			"x",
			"",
			"404 run_not_found: run not found",
		},
		{
			"a run that is not there",
			"POST",
			"/agent/v1/logs/j1.7/0?offset=0",
			n.http,
			"x",
			"",
			"404 run_not_found: there is no run j1.7",
		},
		{"no offset", "POST", "/agent/v1/logs/j1.1/0", n.http, "x", "", "422 bad_offset offset: offset must be an integer"},
		{
			"an offset below nothing",
			"POST",
			"/agent/v1/logs/j1.1/0?offset=-1",
			n.http,
			"x",
			"",
			"422 bad_offset offset: offset must be an integer",
		},
		{
			"output that is no gzip",
			"POST",
			"/agent/v1/logs/j1.1/0?offset=0",
			n.http,
			"x",
			"Content-Encoding: gzip",
			"422 bad_gzip: the body is not gzip although Content-Encoding says so",
		},
		{
			"output that breaks off",
			"POST",
			"/agent/v1/logs/j1.1/0?offset=0",
			n.http,
			bomb.String()[:bomb.Len()/2],
			"Content-Encoding: gzip",
			"422 broken_upload: the upload was interrupted",
		},
		{
			"output that unpacks to too much",
			"POST",
			"/agent/v1/logs/j1.1/0?offset=0",
			n.http,
			bomb.String(),
			"Content-Encoding: gzip",
			"413 too_large: an upload must not be larger than 8388608 bytes",
		},
		{
			"output that is too much",
			"POST",
			"/agent/v1/logs/j1.1/0?offset=0",
			n.http,
			strings.Repeat("x", agentapi.MaxLogPart+1),
			"",
			"413 too_large: an upload must not be larger than 8388608 bytes",
		},
		{
			"output that is far too much",
			"POST",
			"/agent/v1/logs/j1.1/0?offset=0",
			n.http,
			strings.Repeat("x", agentapi.MaxLogPart+2<<20),
			"",
			"413 too_large: an upload must not be larger than 8388608 bytes",
		},
		{
			"a file of no run on the node",
			"GET",
			"/agent/v1/files/" + digestOf("absent"),
			n.http,
			"",
			"",
			"403 not_your_file: file " + digestOf("absent") + " belongs to no run on node " + string(n.name),
		},
		{
			"a file that cannot be",
			"GET",
			"/agent/v1/files/..%2F..%2Fyard.db",
			n.http,
			"",
			"",
			`422 bad_digest digest: digest must be a SHA-256 in lower-case hex, got "../../yard.db"`,
		},
		{
			"an inventory that cannot be",
			"POST",
			"/agent/v1/reports",
			n.http,
			`{"capability":1,"boot":"b","seq":1,"inventory":{"address":"","os":"","arch":"","version":"","cpus":"1","memory":"1GB","disk":"1GB",
			"gpus":[{"index":64,"uuid":"","model":"","memory":"1GB"}]}}`,
			"",
			"422 bad_inventory inventory: GPU 64 is listed twice or out of range",
		},
		{
			"a problem without a cause",
			"POST",
			"/agent/v1/reports",
			n.http,
			`{"capability":1,"boot":"b","seq":1,"inventory":{"address":"","os":"","arch":"","version":"","cpus":"1","memory":"1GB","disk":"1GB",
			"problem":{"cause":"","reason":"x"}}}`,
			"",
			"422 bad_inventory inventory: the cause of a problem must have 1 to 64 bytes and its reason at most 2000",
		},
		{
			"progress below nothing",
			"POST",
			"/agent/v1/reports",
			n.http,
			`{"capability":2,"boot":"b","seq":1,"ranks":[{"run":"j1.1","rank":0,"state":"running","progress":{"done":-1}}]}`,
			"",
			"422 bad_progress progress: done must be a number between 0 and 1e+18, got -1",
		},
		{
			"progress without what is done",
			"POST",
			"/agent/v1/reports",
			n.http,
			`{"capability":2,"boot":"b","seq":1,"ranks":[{"run":"j1.1","rank":0,"state":"running","progress":{"work":1}}]}`,
			"",
			"422 bad_request ranks[0].progress: expected required property done to be present",
		},
		{
			"a report that is too large",
			"POST",
			"/agent/v1/reports",
			n.http,
			`{"boot":"` + strings.Repeat("x", 17<<20) + `"}`,
			"",
			"413 too_large: request body is too large limit=16777216 bytes",
		},
		{
			"a request to renew that is none",
			"POST",
			"/agent/v1/renew",
			n.http,
			`{"csr":"hello"}`,
			"",
			"422 csr_invalid: the certificate signing request is not a single PEM block of that type",
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var headers []string
			if tt.header != "" {
				headers = []string{tt.header}
			}

			got := y.raw(tt.with, tt.method, tt.path, "", tt.body, headers...)
			if text := says(&got.p); text != tt.want {
				t.Errorf("got\n%s\nwant\n%s", text, tt.want)
			}
		})
	}

	// None of it left anything behind.
	st, err := y.srv.Logbook.State(t.Context(), archive.Log{Run: "j1.1"})
	y.must(err)

	if st.Size != 0 || st.Ended {
		t.Errorf("the log has %d bytes", st.Size)
	}

	y.must(y.loop.Query(t.Context(), func(*yardmaster.Yard) {}))
}
