package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// tryers are who tries each operation, each with a token of every scope. The jobs and the token are of ada, who is a
// member of the project vision, to which the jobs belong; eva is a member too, and lea leads it.
var tryers = []struct {
	user id.User
	role tenant.Role
}{
	{"eva", tenant.Viewer},
	{"ada", tenant.Researcher},
	{"bob", tenant.Researcher},
	{"lea", tenant.Researcher},
	{"otto", tenant.Operator},
	{"root", tenant.Admin},
}

// matrixRow is one operation and what each caller is answered: y for let in, else the last digit of 401, 403 or
// 404. First is somebody without a token; then each of the tryers with the scopes read, submit, tokens and admin;
// last a node.
type matrixRow struct {
	path string // with the names of real things
	body string
	want string
}

const (
	everybody = "y yyyy yyyy yyyy yyyy yyyy yyyy y"
	nodesOnly = "1 1111 1111 1111 1111 1111 1111 y"
)

var matrix = map[string]matrixRow{
	"login":    {"/api/v1/login", `{"token":"BOOTSTRAP"}`, everybody},
	"sign-in":  {"/api/v1/session", `{"token":"PRESENTED"}`, everybody},
	"sign-out": {"/api/v1/session", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"}, // they have none: 409

	"sign-out-everywhere": {"/api/v1/sessions", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},

	"info":          {"/api/v1/info", "", everybody},
	"whoami":        {"/api/v1/whoami", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"list-users":    {"/api/v1/users", "", "1 3333 3333 3333 3333 3333 333y 1"},
	"get-user":      {"/api/v1/users/ada", "", "1 3333 yyyy 3333 3333 3333 333y 1"},
	"put-user":      {"/api/v1/users/ada", `{"role":"researcher"}`, "1 3333 3333 3333 3333 3333 333y 1"},
	"list-tokens":   {"/api/v1/tokens?owner=ada", "", "1 3333 3yyy 3333 3333 3333 333y 1"},
	"add-token":     {"/api/v1/tokens", `{"kind":"access","owner":"ada","scope":"read"}`, "1 3333 33yy 3333 3333 3333 333y 1"},
	"revoke-token":  {"/api/v1/tokens/TOKEN", "", "1 4444 33yy 4444 4444 4444 444y 1"},
	"revoke-tokens": {"/api/v1/tokens?owner=eve", "", "1 3333 3333 3333 3333 3333 333y 1"},

	"list-projects":  {"/api/v1/projects", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"get-project":    {"/api/v1/projects/vision", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"add-project":    {"/api/v1/projects/vision", "", "1 3333 3333 3333 3333 3333 333y 1"},
	"remove-project": {"/api/v1/projects/spare", "", "1 3333 3333 3333 3333 3333 333y 1"},
	"put-member":     {"/api/v1/projects/vision/members/ada", "{}", "1 3333 3333 3333 3333 3333 333y 1"},
	"remove-member":  {"/api/v1/projects/vision/members/gil", "", "1 3333 3333 3333 3333 3333 333y 1"},

	"submit-jobs": {"/api/v1/jobs", `{"file":"run: a","dry_run":true}`, "1 3333 3yyy 3yyy 3yyy 3yyy 3yyy 1"},
	"list-jobs":   {"/api/v1/jobs?owner=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"get-job":     {"/api/v1/jobs/j1", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},

	"get-job-file":   {"/api/v1/jobs/j1/file", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"list-templates": {"/api/v1/templates", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},

	"save-job":     {"/api/v1/jobs/j2/save", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"pause-job":    {"/api/v1/jobs/j2/pause", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"resume-job":   {"/api/v1/jobs/j2/resume", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"list-arrays":  {"/api/v1/arrays?owner=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"get-array":    {"/api/v1/arrays/a5", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"pause-array":  {"/api/v1/arrays/a5/pause", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"resume-array": {"/api/v1/arrays/a5/resume", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"cancel-array": {"/api/v1/arrays/a5/cancel", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"kill-array":   {"/api/v1/arrays/a5/kill", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"list-queue":   {"/api/v1/queue?owner=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"edit-job":     {"/api/v1/jobs/j2/edit", `{"set":["expect=2h"]}`, "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"preview-edit": {
		"/api/v1/jobs/j2/edit/preview", `{"set":["expect=2h"]}`, "1 3333 3yyy 3444 3yyy 3333 3yyy 1",
	},
	"cancel-job":  {"/api/v1/jobs/j2/cancel", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"kill-job":    {"/api/v1/jobs/j2/kill", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"open-tunnel": {"/api/v1/jobs/j1/tunnel", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"}, // without a WebSocket: 409
	"read-logs":   {"/api/v1/jobs/j1/logs", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"follow-logs": {"/api/v1/jobs/j1/logs/follow", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},

	"read-log-lines": {"/api/v1/jobs/j1/logs/j1.1/0/lines", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},

	"download-log": {"/api/v1/jobs/j1/logs/j1.1/0", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},

	"list-schedules": {"/api/v1/schedules", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"stop-schedule":  {"/api/v1/schedules/s1/stop", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},

	"list-checkpoints":    {"/api/v1/jobs/j1/checkpoints", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"get-checkpoint":      {"/api/v1/checkpoints/j1.c1", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"pin-checkpoint":      {"/api/v1/checkpoints/j1.c1/pin", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"unpin-checkpoint":    {"/api/v1/checkpoints/j1.c1/pin", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"remove-checkpoint":   {"/api/v1/checkpoints/j1.c1", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"}, // its job needs it, so it stays
	"list-outputs":        {"/api/v1/jobs/j1/outputs", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"join-file":           {"/api/v1/files/" + digestOf("x") + "/join", `{"parts":["` + digestOf("x") + `"],"size":1}`, "1 3333 3yyy 3yyy 3yyy 3yyy 3yyy 1"},
	"ask-outputs":         {"/api/v1/jobs/j1/outputs", `{"patterns":["x"],"run":"j1.1","rank":1}`, "1 3333 3444 3444 3444 3333 3444 1"}, // j1.1 has one rank
	"get-outputs":         {"/api/v1/jobs/j1/outputs/j1.1/0", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"get-output-chunk":    {"/api/v1/jobs/j1/outputs/j1.1/0/chunks/" + digestOf("a"), "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"get-output-file":     {"/api/v1/jobs/j1/outputs/j1.1/0/file?path=a", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"download-checkpoint": {"/api/v1/checkpoints/j1.c1/archive", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},

	"get-forecast":        {"/api/v1/jobs/j1/forecast", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"list-metrics":        {"/api/v1/jobs/j1/metrics", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"get-curve":           {"/api/v1/jobs/j1/curve?metric=loss", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"list-curves":         {"/api/v1/curves?job=j1", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"}, // jobs that one may not see are left out
	"get-utilization":     {"/api/v1/jobs/j1/utilization", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"list-utilization":    {"/api/v1/utilization", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"get-forecast-record": {"/api/v1/forecasts", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"import-history":      {"/api/v1/forecasts/history", "seconds\n10\n", "1 3333 3333 3333 3333 333y 333y 1"},

	"list-secrets":      {"/api/v1/secrets", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"put-secret":        {"/api/v1/secrets/user/ada/KEY", `{"value":"12345678"}`, "1 3333 3yyy 3333 3333 3333 3yyy 1"},
	"remove-secret":     {"/api/v1/secrets/user/ada/OTHER", "", "1 3333 3444 3333 3333 3333 3444 1"}, // it is not there
	"rotate-secret-key": {"/api/v1/secrets/rotate-key", "", "1 3333 3333 3333 3333 3333 333y 1"},

	"list-channels": {"/api/v1/notify", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"put-channel": {
		"/api/v1/notify/user/ada/phone", `{"kind":"slack","url":"https://hooks.example.org/x"}`,
		"1 3333 3yyy 3333 3333 3333 3yyy 1",
	},
	"remove-channel": {"/api/v1/notify/user/ada/other", "", "1 3333 3444 3333 3333 3333 3444 1"},      // it is not there
	"test-channel":   {"/api/v1/notify/user/ada/other/test", "", "1 3333 3444 3333 3333 3333 3444 1"}, // the same

	"list-events":   {"/api/v1/events", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"follow-events": {"/api/v1/events/follow", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},

	"list-reservations": {"/api/v1/reservations", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"add-reservation": {
		"/api/v1/reservations", `{"user":"ada","nodes":["n1"],"from":"2099-01-01T00:00:00Z","until":"2099-01-02T00:00:00Z"}`,
		"1 3333 3333 3333 3333 333y 333y 1", // the second is refused, because the node is reserved
	},
	"end-reservation": {"/api/v1/reservations/r1/end", "", "1 3333 3333 3333 3333 333y 333y 1"},

	"get-summary":     {"/api/v1/summary", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"get-use-hours":   {"/api/v1/summary/hours", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"list-nodes":      {"/api/v1/nodes", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"list-node-runs":  {"/api/v1/nodes/n1/runs", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"get-node":        {"/api/v1/nodes/n1", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"cordon-node":     {"/api/v1/nodes/n1/cordon", "", "1 3333 3333 3333 3333 333y 333y 1"},
	"drain-node":      {"/api/v1/nodes/n1/drain", "", "1 3333 3333 3333 3333 333y 333y 1"},
	"uncordon-node":   {"/api/v1/nodes/n1/uncordon", "", "1 3333 3333 3333 3333 333y 333y 1"},
	"accept-node":     {"/api/v1/nodes/n1/accept", "", "1 3333 3333 3333 3333 333y 333y 1"},             // nothing waits for that
	"remove-node":     {"/api/v1/nodes/n1", "", "1 3333 3333 3333 3333 333y 333y 1"},                    // it is busy, so it stays
	"clear-gpu-error": {"/api/v1/nodes/n1/gpus/0/clear-error", "", "1 3333 3333 3333 3333 3334 3334 1"}, // it has none

	"list-offers":   {"/api/v1/offers", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"list-leases":   {"/api/v1/leases?owner=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"get-lease":     {"/api/v1/leases/l1", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"release-lease": {"/api/v1/leases/l1/release", "", "1 3333 3333 3333 3333 333y 333y 1"},
	"reaper":        {"/api/v1/reaper", "", "1 3333 3333 3333 3333 yyyy yyyy 1"},

	"list-questions":   {"/api/v1/inbox?owner=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"get-question":     {"/api/v1/inbox/j3.q1", "", "1 yyyy yyyy 4444 yyyy yyyy yyyy 1"},
	"accept-option":    {"/api/v1/inbox/j3.q1/accept", `{"option":"pause"}`, "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},
	"dismiss-question": {"/api/v1/inbox/j4.q1/dismiss", "", "1 3333 3yyy 3444 3yyy 3333 3yyy 1"},

	"get-retention": {"/api/v1/retention", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"what-if":       {"/api/v1/whatif", "{}", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"list-policies": {"/api/v1/policies", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},

	"list-quotas":  {"/api/v1/quotas", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"put-quota":    {"/api/v1/quotas/user/bob", `{"gpus":3}`, "1 3333 3333 3333 3333 3333 333y 1"},
	"remove-quota": {"/api/v1/quotas/user/ada", "", "1 3333 3333 3333 3333 3333 333y 1"},

	"list-datasets":  {"/api/v1/datasets", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"get-dataset":    {"/api/v1/datasets/cats", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"put-dataset":    {"/api/v1/datasets/cats", `{"place":"local"}`, "1 3333 3yyy 3333 3333 3333 3yyy 1"},
	"remove-dataset": {"/api/v1/datasets/dogs", "", "1 3333 3333 3333 3333 3333 3y44 1"},
	"audit-dataset":  {"/api/v1/datasets/cats/audit", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"override-place": {"/api/v1/jobs/j2/override", `{"place":"any","why":"x"}`, "1 3333 3333 3333 3333 3333 333y 1"},

	"usage":        {"/api/v1/usage?researcher=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"usage-report": {"/api/v1/usage/report?where=project=vision", "", "1 yyyy yyyy yyyy yyyy yyyy yyyy 1"},
	"usage-series": {"/api/v1/usage/series?where=researcher=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"savings":      {"/api/v1/savings?where=researcher=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},
	"waste":        {"/api/v1/waste?owner=ada", "", "1 3333 yyyy 3333 3333 yyyy yyyy 1"},

	"missing-files": {"/api/v1/files/missing", `{"digests":[]}`, "1 3333 3yyy 3yyy 3yyy 3yyy 3yyy 1"},
	"put-file":      {"/api/v1/files/" + digestOf("x"), "x", "1 3333 3yyy 3yyy 3yyy 3yyy 3yyy 1"},

	"answer-tunnel":      {"/agent/v1/tunnels/x", "", "1 1111 1111 1111 1111 1111 1111 4"}, // nobody wants it
	"renew":              {"/agent/v1/renew", `{"csr":"CSR"}`, nodesOnly},
	"report":             {"/agent/v1/reports", `{"capability":1,"boot":"b","seq":1}`, nodesOnly},
	"follow-assignments": {"/agent/v1/assignments", "", nodesOnly},
	"push-metrics":       {"/agent/v1/metrics", `{"runs":[{"run":"j1.1"}]}`, nodesOnly},
	"put-log":            {"/agent/v1/logs/j1.1/0?offset=0", "", nodesOnly},
	"locate-chunks":      {"/agent/v1/chunks", `{"run":"j1.1","chunks":[]}`, nodesOnly},
	"put-chunk":          {"/agent/v1/chunks/" + digestOf("x") + "?run=j1.1", "x", nodesOnly},
	"get-chunk":          {"/agent/v1/chunks/" + digestOf("x") + "?run=j1.1", "", "1 1111 1111 1111 1111 1111 1111 3"}, // j1.1 restores nothing
	"add-outputs":        {"/agent/v1/outputs", `{"run":"j1.1","uid":"other","rank":0,"bytes":"1B"}`, nodesOnly},
	"find-unneeded-dirs": {"/agent/v1/shared", `{"shared":"lab","dirs":[]}`, "1 1111 1111 1111 1111 1111 1111 3"}, // the node has none
	"get-file":           {"/agent/v1/files/" + digestOf("x"), "", "1 1111 1111 1111 1111 1111 1111 3"},           // of no run there
	"join": {
		"/agent/v1/join",
		`{"capability":1,"token":"JOIN","name":"n2","csr":"CSR","inventory":{"address":"a","os":"o","arch":"a","version":"v","cpus":"1","memory":"1GB","disk":"1GB"}}`,
		everybody,
	},
	"add-checkpoint": {
		"/agent/v1/checkpoints",
		`{"run":"j1.1","uid":"other","rank":0,"ranks":1,"name":".","size":"1B","found":"rest","written":"2026-01-01T00:00:00Z"}`,
		nodesOnly,
	},
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
	n := y.join("n1")
	n.listen()

	ada := y.researcher("ada")
	y.token("gil", tenant.Researcher, tenant.ScopeRead)
	y.token("eve", tenant.Researcher, tenant.ScopeRead)
	tokens := y.tokensOfAll()
	y.do(yardmaster.PutProject{Project: "vision", By: "test"})
	y.do(yardmaster.PutProject{Project: "spare", By: "test"})

	for _, m := range []tenant.Member{{User: "eva"}, {User: "ada"}, {User: "gil"}, {User: "lea", Lead: true}} {
		m.Project = "vision"
		y.do(yardmaster.PutMember{Member: m, By: "test"})
	}

	n.started(ada, "project: vision")
	n.tell(api.RankReport{Run: "j1.1", State: job.RunRunning, Started: y.clock.Now(), Use: &job.Use{At: y.clock.Now()}})
	n.measures("j1.1", api.SeriesPoints{Name: "loss", Points: decay(0, 3, y.clock.Now())})
	n.saves("j1.1")
	y.must(n.leaves("j1.1", n.assigned("j1.1").Launch.UID, "a"))
	y.submit(ada, "run: b\nproject: vision\nresources: {memory: 900GB}")
	y.submit(ada, "run: c\nproject: vision\nevery: 6h")
	n.outOfMemory(ada, "1GB", "project: vision")
	n.outOfMemory(ada, "1GB", "project: vision")

	_, err := ada.Submit(t.Context(), api.SubmitRequest{
		File: "run: d\nproject: vision\narray: 0..1\nresources: {memory: 900GB}",
	}, "")
	y.must(err)
	y.do(yardmaster.PutQuota{Quota: tenant.Quota{Subject: tenant.Subject{User: "ada"}, GPUs: 4}, By: "test"})
	y.do(yardmaster.PutDataset{Dataset: dataset.Dataset{ID: "cats", Rule: job.PlaceLocal}, By: "ada"})
	y.do(yardmaster.PutDataset{Dataset: dataset.Dataset{ID: "dogs", Rule: job.PlaceLocal}, By: "root"})
	y.must(ada.PutFile(t.Context(), digestOf("x"), "", strings.NewReader("x")))
	y.do(yardmaster.AddReservation{Reservation: fleet.Reservation{
		User: "ada", Nodes: []id.Node{"n1"}, From: y.clock.Now().AddDate(1, 0, 0), Until: y.clock.Now().AddDate(1, 0, 1), By: "root",
	}})
	fill := y.fillMatrix(n)

	seen := map[string]bool{}
	for path, methods := range describeYard(y).Paths {
		for method, op := range methods {
			row, ok := matrix[op.ID]
			if !ok {
				t.Errorf("%s %s (%s) has no row in the matrix: say who may do it", method, path, op.ID)
				continue
			}

			if _, ok := calls[strings.ToUpper(method)+" "+path]; !ok {
				t.Errorf("%s %s (%s) is not in the table of calls", method, path, op.ID)
			}

			seen[op.ID] = true

			t.Run(op.ID, func(t *testing.T) {
				try := func(client *http.Client, token string) string {
					a := y.raw(client, strings.ToUpper(method), fill.Replace(row.path), token, fill.Replace(row.body))
					switch a.status {
					case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
						return string('0' + rune(a.status%10))
					case http.StatusInternalServerError,
						http.StatusServiceUnavailable,
						http.StatusUnprocessableEntity,
						http.StatusBadRequest:
						t.Errorf("%d %s", a.status, a.body)
					}

					return "y"
				}

				got := []string{try(y.http, "")}
				for i := range tryers {
					answers := ""
					for _, token := range tokens[i] {
						answers += try(y.http, token)
					}

					got = append(got, answers)
				}

				got = append(got, try(n.http, ""))
				if text := strings.Join(got, " "); text != row.want {
					t.Errorf("answers to nobody, %v with each scope, and a node\ngot  %s\nwant %s", tryers, text, row.want)
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

// tokensOfAll makes a token of every scope for each of the tryers.
func (y *yard) tokensOfAll() [][]string {
	y.t.Helper()
	tokens := make([][]string, len(tryers))
	for i, who := range tryers {
		for _, scope := range tenant.Scopes() {
			tokens[i] = append(tokens[i], y.token(who.user, who.role, scope))
		}
	}

	return tokens
}

// fillMatrix puts the names of real things into the rows.
func (y *yard) fillMatrix(n *node) *strings.Replacer {
	y.t.Helper()
	soon := y.clock.Now().Add(time.Hour)
	victim, err := auth.Parse(
		y.newToken(tenant.Token{Kind: tenant.AccessToken, Owner: "ada", Scope: tenant.ScopeRead, Expires: soon}),
	)

	y.must(err)
	csr, err := n.identity.CSR("n1")
	y.must(err)

	return strings.NewReplacer(
		"TOKEN", string(victim.ID),
		"PRESENTED", y.newToken(tenant.Token{Kind: tenant.AccessToken, Owner: "ada", Scope: tenant.ScopeRead, Expires: soon}),
		"JOIN", y.joinToken(100),
		"CSR", strings.ReplaceAll(string(csr), "\n", `\n`),
		"BOOTSTRAP", y.newToken(tenant.Token{
			Kind: tenant.BootstrapToken, Owner: "root", Scope: tenant.ScopeAdmin, UsesLeft: 100, Expires: soon,
		}),
	)
}

// A route that nobody has said who may use is a mistake, with which the server does not start.
func TestARouteThatIsNotInTheTableStopsTheServer(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "GET /api/v1/backdoor is not in the table of calls") {
			t.Errorf("registering it said %q", p)
		}
	}()

	y.srv.mux.HandleFunc("GET /api/v1/backdoor", func(http.ResponseWriter, *http.Request) {})
}

// Every call in the table is a route: the table cannot promise what is not there.
func TestEveryCallOfTheTableIsARoute(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	for pattern := range calls {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			method, path = http.MethodGet, pattern+"no/such/path"
		}

		path = strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path)
		req, err := http.NewRequestWithContext(t.Context(), method, path, nil)
		y.must(err)

		if _, got := y.srv.mux.mux.Handler(req); got != pattern {
			t.Errorf("the table has %s, which is not a route: it is answered by %q", pattern, got)
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

			if open := len(op.Security) == 0; open != slices.Contains([]string{"login", "sign-in", "info", "join"}, op.ID) {
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
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()

	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came true: %s", what)
		}
	}
}
