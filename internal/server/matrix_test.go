package server

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/dataset"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// callers are who tries each operation, in the order of the rows. The job, the
// token and the node's run are of ada.
var callers = []string{"nobody", "ada to read", "ada to submit", "ada as admin", "bob", "root", "node"}

// matrixRow is one operation and what each caller is answered: y for let in,
// else the last digit of 401, 403 or 404.
type matrixRow struct {
	path string // with the names of real things
	body string
	want string
}

var matrix = map[string]matrixRow{
	"login":        {"/api/v1/login", `{"token":"BOOTSTRAP"}`, "yyyyyyy"},
	"whoami":       {"/api/v1/whoami", "", "1yyyyy1"},
	"info":         {"/api/v1/info", "", "yyyyyyy"},
	"list-users":   {"/api/v1/users", "", "13333y1"},
	"get-user":     {"/api/v1/users/ada", "", "1yyy3y1"},
	"put-user":     {"/api/v1/users/ada", `{"role":"researcher"}`, "13333y1"},
	"list-tokens":  {"/api/v1/tokens?owner=ada", "", "13yy3y1"},
	"add-token":    {"/api/v1/tokens", `{"kind":"access","owner":"ada","scope":"read"}`, "13yy3y1"},
	"revoke-token": {"/api/v1/tokens/TOKEN", "", "14yy4y1"},

	"submit-jobs": {"/api/v1/jobs", `{"file":"run: a","dry_run":true}`, "13yyyy1"},
	"list-jobs":   {"/api/v1/jobs?owner=ada", "", "1yyy3y1"},
	"get-job":     {"/api/v1/jobs/j1", "", "1yyy4y1"},
	"save-job":    {"/api/v1/jobs/j2/save", "", "13yy4y1"},
	"pause-job":   {"/api/v1/jobs/j2/pause", "", "13yy4y1"},
	"resume-job":  {"/api/v1/jobs/j2/resume", "", "13yy4y1"},
	"cancel-job":  {"/api/v1/jobs/j2/cancel", "", "13yy4y1"},
	"kill-job":    {"/api/v1/jobs/j2/kill", "", "13yy4y1"},
	"read-logs":   {"/api/v1/jobs/j1/logs", "", "1yyy4y1"},
	"follow-logs": {"/api/v1/jobs/j1/logs/follow", "", "1yyy4y1"},

	"list-checkpoints":    {"/api/v1/jobs/j1/checkpoints", "", "1yyy4y1"},
	"get-checkpoint":      {"/api/v1/checkpoints/j1.c1", "", "1yyy4y1"},
	"pin-checkpoint":      {"/api/v1/checkpoints/j1.c1/pin", "", "13yy4y1"},
	"unpin-checkpoint":    {"/api/v1/checkpoints/j1.c1/pin", "", "13yy4y1"},
	"remove-checkpoint":   {"/api/v1/checkpoints/j1.c1", "", "13yy4y1"}, // its job needs it, so it stays
	"download-checkpoint": {"/api/v1/checkpoints/j1.c1/archive", "", "1yyy4y1"},

	"get-forecast":        {"/api/v1/jobs/j1/forecast", "", "1yyy4y1"},
	"list-metrics":        {"/api/v1/jobs/j1/metrics", "", "1yyy4y1"},
	"get-curve":           {"/api/v1/jobs/j1/curve?metric=loss", "", "1yyy4y1"},
	"get-forecast-record": {"/api/v1/forecasts", "", "1yyyyy1"},
	"import-history":      {"/api/v1/forecasts/history", "seconds\n10\n", "13333y1"},

	"list-events":   {"/api/v1/events", "", "1yyyyy1"},
	"follow-events": {"/api/v1/events/follow", "", "1yyyyy1"},

	"list-nodes":      {"/api/v1/nodes", "", "1yyyyy1"},
	"get-node":        {"/api/v1/nodes/n1", "", "1yyyyy1"},
	"cordon-node":     {"/api/v1/nodes/n1/cordon", "", "13333y1"},
	"drain-node":      {"/api/v1/nodes/n1/drain", "", "13333y1"},
	"uncordon-node":   {"/api/v1/nodes/n1/uncordon", "", "13333y1"},
	"remove-node":     {"/api/v1/nodes/n1", "", "13333y1"},                    // it is busy, so it stays
	"clear-gpu-error": {"/api/v1/nodes/n1/gpus/0/clear-error", "", "1333341"}, // it has none

	"list-offers":   {"/api/v1/offers", "", "1yyyyy1"},
	"list-leases":   {"/api/v1/leases?owner=ada", "", "1yyy3y1"},
	"get-lease":     {"/api/v1/leases/l1", "", "1yyy4y1"},
	"release-lease": {"/api/v1/leases/l1/release", "", "13334y1"},
	"reaper":        {"/api/v1/reaper", "", "13333y1"},

	"list-questions":   {"/api/v1/inbox?owner=ada", "", "1yyy3y1"},
	"get-question":     {"/api/v1/inbox/j3.q1", "", "1yyy4y1"},
	"accept-option":    {"/api/v1/inbox/j3.q1/accept", `{"option":"pause"}`, "13yy4y1"},
	"dismiss-question": {"/api/v1/inbox/j4.q1/dismiss", "", "13yy4y1"},

	"list-quotas":  {"/api/v1/quotas", "", "1yyyyy1"},
	"put-quota":    {"/api/v1/quotas/user/bob", `{"gpus":3}`, "13333y1"},
	"remove-quota": {"/api/v1/quotas/user/ada", "", "13333y1"},

	"list-datasets":  {"/api/v1/datasets", "", "1yyyyy1"},
	"get-dataset":    {"/api/v1/datasets/cats", "", "1yyyyy1"},
	"put-dataset":    {"/api/v1/datasets/cats", `{"place":"local"}`, "13yy3y1"},
	"remove-dataset": {"/api/v1/datasets/dogs", "", "13333y1"},
	"audit-dataset":  {"/api/v1/datasets/cats/audit", "", "1yyy3y1"},
	"override-place": {"/api/v1/jobs/j2/override", `{"place":"any","why":"x"}`, "13334y1"},

	"usage":        {"/api/v1/usage?researcher=ada", "", "1yyy3y1"},
	"usage-report": {"/api/v1/usage/report?where=researcher=ada", "", "1yyy3y1"},
	"savings":      {"/api/v1/savings?where=researcher=ada", "", "1yyy3y1"},

	"missing-files": {"/api/v1/files/missing", `{"digests":[]}`, "13yyyy1"},
	"put-file":      {"/api/v1/files/" + digestOf("x"), "x", "13yyyy1"},

	"join": {
		"/agent/v1/join",
		`{"capability":1,"token":"JOIN","name":"n2","csr":"CSR","inventory":{"address":"a","os":"o","arch":"a","version":"v","cpus":"1","memory":"1GB","disk":"1GB"}}`,
		"yyyyyyy",
	},
	"renew":              {"/agent/v1/renew", `{"csr":"CSR"}`, "111111y"},
	"report":             {"/agent/v1/reports", `{"capability":1,"boot":"b","seq":1}`, "111111y"},
	"follow-assignments": {"/agent/v1/assignments", "", "111111y"},
	"push-metrics":       {"/agent/v1/metrics", `{"runs":[{"run":"j1.1"}]}`, "111111y"},
	"put-log":            {"/agent/v1/logs/j1.1/0?offset=0", "", "111111y"},
	"locate-chunks":      {"/agent/v1/chunks", `{"run":"j1.1","chunks":[]}`, "111111y"},
	"put-chunk":          {"/agent/v1/chunks/" + digestOf("x") + "?run=j1.1", "x", "111111y"},
	"get-chunk":          {"/agent/v1/chunks/" + digestOf("x") + "?run=j1.1", "", "1111113"}, // j1.1 restores nothing
	"add-checkpoint": {
		"/agent/v1/checkpoints",
		`{"run":"j1.1","uid":"other","rank":0,"ranks":1,"name":".","size":"1B","found":"rest","written":"2026-01-01T00:00:00Z"}`,
		"111111y",
	},
	"find-unneeded-dirs": {"/agent/v1/shared", `{"shared":"lab","dirs":[]}`, "1111113"}, // the node has none
	"get-file":           {"/agent/v1/files/" + digestOf("x"), "", "111111y"},
}

// description is the part of the OpenAPI description that tests look at.
type description struct {
	OpenAPI string `yaml:"openapi"`
	Paths   map[string]map[string]struct {
		ID       string                `yaml:"operationId"`
		Summary  string                `yaml:"summary"`
		Tags     []string              `yaml:"tags"`
		Security []map[string][]string `yaml:"security"`
		Answers  map[string]any        `yaml:"responses"`
	} `yaml:"paths"`
}

// describeYard reads the description as a client does.
func describeYard(y *yard) description {
	y.t.Helper()
	got := y.raw(y.http, http.MethodGet, "/api/v1/openapi.yaml", "", "")
	var d description
	y.must(yaml.Unmarshal(got.body, &d))

	return d
}

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	tokens := map[string]string{
		"ada to read":   y.token("ada", tenant.Researcher, tenant.ScopeRead),
		"ada to submit": y.token("ada", tenant.Researcher, tenant.ScopeSubmit),
		"ada as admin":  y.token("ada", tenant.Researcher, tenant.ScopeAdmin),
		"bob":           y.token("bob", tenant.Researcher, tenant.ScopeSubmit),
		"root":          y.token("root", tenant.Admin, tenant.ScopeAdmin),
	}

	n := y.join("n1")
	n.listen()
	ada := y.client(tokens["ada to submit"])
	n.started(ada)
	n.measures("j1.1", api.SeriesPoints{Name: "loss", Points: decay(0, 3, y.clock.Now())})
	n.saves("j1.1")
	y.submit(ada, "run: b\nresources: {memory: 900GB}")
	n.outOfMemory(ada, "1GB")
	n.outOfMemory(ada, "1GB")
	y.do(yardmaster.PutQuota{Quota: tenant.Quota{Subject: tenant.Subject{User: "ada"}, GPUs: 4}, By: "test"})
	y.do(yardmaster.PutDataset{Dataset: dataset.Dataset{ID: "cats", Rule: job.PlaceLocal}, By: "ada"})
	y.do(yardmaster.PutDataset{Dataset: dataset.Dataset{ID: "dogs", Rule: job.PlaceLocal}, By: "root"})
	y.must(ada.PutFile(t.Context(), digestOf("x"), "", strings.NewReader("x")))

	victim, err := auth.Parse(
		y.newToken(
			tenant.Token{Kind: tenant.AccessToken, Owner: "ada", Scope: tenant.ScopeRead, Expires: y.clock.Now().Add(time.Hour)},
		),
	)

	y.must(err)
	csr, err := n.identity.CSR("n1")
	y.must(err)

	fill := strings.NewReplacer(
		"TOKEN",
		string(victim.ID),
		"JOIN",
		y.joinToken(100),
		"CSR",
		strings.ReplaceAll(string(csr), "\n", `\n`),
		"BOOTSTRAP",
		y.newToken(
			tenant.Token{Kind: tenant.BootstrapToken, Owner: "root", UsesLeft: 100, Expires: y.clock.Now().Add(time.Hour)},
		),
	)

	seen := map[string]bool{}
	for path, methods := range describeYard(y).Paths {
		for method, op := range methods {
			row, ok := matrix[op.ID]
			if !ok {
				t.Errorf("%s %s (%s) has no row in the matrix: say who may do it", method, path, op.ID)
				continue
			}

			seen[op.ID] = true

			t.Run(op.ID, func(t *testing.T) {
				var got strings.Builder
				for _, who := range callers {
					client := y.http
					if who == "node" {
						client = n.http
					}

					a := y.raw(client, strings.ToUpper(method), fill.Replace(row.path), tokens[who], fill.Replace(row.body))
					switch a.status {
					case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
						got.WriteByte('0' + byte(a.status%10))
					case http.StatusInternalServerError,
						http.StatusServiceUnavailable,
						http.StatusUnprocessableEntity,
						http.StatusBadRequest:
						t.Errorf("%s: %d %s", who, a.status, a.body)
					default:
						got.WriteByte('y')
					}
				}

				if got.String() != row.want {
					t.Errorf("answers to %s are %s, want %s", strings.Join(callers, ", "), got.String(), row.want)
				}
			})
		}
	}

	for name := range matrix {
		if !seen[name] {
			t.Errorf("the matrix has a row for %s, which is no operation", name)
		}
	}
}

func TestTheDescriptionIsComplete(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	d := describeYard(y)
	if !strings.HasPrefix(d.OpenAPI, "3.") {
		t.Errorf("it is of version %q", d.OpenAPI)
	}

	var ids []string
	for path, methods := range d.Paths {
		for method, op := range methods {
			what := strings.ToUpper(method) + " " + path
			if op.ID == "" || op.Summary == "" || len(op.Tags) != 1 || len(op.Answers) == 0 {
				t.Errorf("%s lacks an operationId, a summary, a tag or answers", what)
			}

			if slices.Contains(ids, op.ID) {
				t.Errorf("%s has the operationId %s, which another has", what, op.ID)
			}

			ids = append(ids, op.ID)

			for _, scheme := range op.Security {
				_, person := scheme["token"]
				_, node := scheme["node"]
				if person != strings.HasPrefix(path, "/api/") || node != strings.HasPrefix(path, "/agent/") {
					t.Errorf("%s is guarded by %v", what, scheme)
				}
			}

			if open := len(op.Security) == 0; open != slices.Contains([]string{"login", "info", "join"}, op.ID) {
				t.Errorf("%s: open to everybody is %v", what, open)
			}
		}
	}

	if len(ids) < 30 {
		t.Errorf("it has %d operations only", len(ids))
	}

	for path, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ready\n", "/api/v1/jobfile.schema.json": "{", "/": "This is a Trainyard server", "/metrics": "# HELP",
	} {
		awaitReady(t, y)

		if got := y.raw(y.http, http.MethodGet, path, "", ""); got.status != http.StatusOK ||
			!strings.HasPrefix(string(got.body), want) {
			t.Errorf("GET %s: %d %.60s", path, got.status, got.body)
		}
	}

	info, err := y.client("").Info(t.Context())
	y.must(err)

	if info.Version != "test" || info.Store != "sqlite" || info.CAHash != y.ca.Hash() ||
		info.Capability != api.Capability ||
		info.Policy != "fifo" {
		t.Errorf("the server says of itself %+v", info)
	}
}

// awaitReady waits until the server says that it is ready.
func awaitReady(t *testing.T, y *yard) {
	t.Helper()
	eventually(t, "the server is ready", func() bool { return y.srv.health.why() == "" })
}

// eventually asks again and again. It bounds a hang; it measures nothing.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()

	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came true: %s", what)
		}
	}
}
