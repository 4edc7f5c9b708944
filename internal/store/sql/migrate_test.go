package sql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"trainyard/internal/checkpoint"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/queue"
	"trainyard/internal/scaling"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
)

// released returns the digests of the migrations: the text of one with which databases were made
// must not change. A new migration adds a line here and a file testdata/schema-NNNN.sql.
func released() map[string]string {
	return map[string]string{
		"migrations/0001_first.sql":       "3cd05c91dbcedb8456bc598f3174902a9997eb4ac871cee27759884d94a912e2",
		"migrations/0002_progress.sql":    "0bb0c4a0fea34eb540ca71e8999da9ef8eb88fd169dcebcf2972d58f3772faaf",
		"migrations/0003_books.sql":       "29955f5bddfc06dd15f4ea2b69dcd4bf6544d8ab26b8d5db497a051068bfc6d9",
		"migrations/0004_documents.sql":   "c8f5974aa8df2629c2206376545a1f77a0dd624f6fc120c2dc0103eba5668405",
		"migrations/0005_vocabulary.sql":  "de5a7f10605677388601e243fc277cd4efc5a0e2eec8f46305c9467f55ec03bb",
		"migrations/0006_estimates.sql":   "91fb9912d7bbd1a69276ef1477a06f97fd3b089653a4ac74ed8c2170a51d3773",
		"migrations/0007_holds.sql":       "e25f9b7b9f7b48cc91f00844a9b44f7caa8c6751ed6cd0de2c75f6e201b60661",
		"migrations/0009_memory.sql":      "59e0eb50b1a1d3786843f5d0eb3a6626954f5ba3d0a9ee682fd238918f585c64",
		"migrations/0011_agents.sql":      "1023a7d4fd59e5c8387ee753332cb3bc3a3d02a256e401b1b4cc28f00a7adbf7",
		"migrations/0008_extras.sql":      "5306026f9d5c9870db7148cefd911248068950ae548b2a84af810aca2644f914",
		"migrations/0012_uids.sql":        "81002b4aa536d9572caa03c6606d41cf0ccf73fc27b030a63cf63d7f1cc45794",
		"migrations/0013_checkpoints.sql": "8560e115f7235e3ea7084911dc130d24c934817c2288d15152d16647ad1d560a",
		"migrations/0014_inbox.sql":       "c837d762f5f4c3288afa63b202f103302f88b7a50cd133f604a42b213c6cc466",
		"migrations/0015_projects.sql":    "57cf1d55f5c83147af0eb7635c761af0f356e0db2ee4f2b4949d66437097939f",
		"migrations/0016_numbers.sql":     "ce88319c5004dce9970635645903b7753062e8d31de206ec3bf27d124d33a01a",
		"migrations/0017_possessions.sql": "171b84757e2fb51d27b2e731392f37e7f7835b31636498d4cdab6be17e612d4f",
		"migrations/0018_identity.sql":    "65c7f4b3a88f258e8f2dd7d81e9a7fc2e3d9aec7602b3e9251f5daa70700bd43",
		"migrations/0019_reports.sql":     "c2c7cecfbb9cf6d6a8d4921c34496fe3d7256e23503eff35a4863372e785f323",
		"migrations/0020_totals.sql":      "9712e848510c23858c27e124fca1ccf7803b62b9e5aa9671178de3e0dd726df6",
		"migrations/0021_sorting.sql":     "116d519180cdeda365bc794ab498311ab2b0b4a8ad303c7daa2c1a8bedcb5b52",
		"migrations/0022_arrays.sql":      "e7fc780b44f4aefacf37597c36b5e26855b76294c99f238e9d02fbf513a2045a",
		"migrations/0010_leadership.sql":  "442fba39f24bdefffb4d674f05d5b5e4dbcc998a87d1e55ea4ffc98926ada6a0",
	}
}

func TestMigrationsNeverChange(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		sum := sha256.Sum256(text)
		got[path] = hex.EncodeToString(sum[:])
	}

	if diff := cmp.Diff(released(), got); diff != "" {
		t.Errorf("write a new migration instead of changing one (-released +found):\n%s", diff)
	}
}

// openAt makes a store of an earlier schema with the rows of its fixture.
func openAt(t *testing.T, url string, version int) {
	t.Helper()
	eng, err := engineOf(url)
	if err != nil {
		t.Fatal(err)
	}

	steps, err := readMigrations(migrationFiles, eng.name())
	if err != nil {
		t.Fatal(err)
	}

	s := bare(t, url)
	if err := s.migrate(t.Context(), steps[:version]); err != nil {
		t.Fatal(err)
	}

	rows, err := os.ReadFile(fmt.Sprintf("testdata/schema-%04d.sql", version))
	if err != nil {
		t.Fatalf("every schema needs rows to migrate from: %v", err)
	}

	for _, statement := range statements(string(rows)) {
		if _, err := s.write.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// bare opens a database without changing it.
func bare(t *testing.T, url string) *Store {
	t.Helper()
	eng, err := engineOf(url)
	if err != nil {
		t.Fatal(err)
	}

	s, err := connect(eng, Options{Clock: clock.Wall{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// The fixtures hold the same things at every schema, so what is read after the migration is the same.
func TestEveryEarlierSchemaMigrates(t *testing.T) {
	t.Parallel()

	for version := 1; version <= len(released()); version++ {
		t.Run(fmt.Sprintf("from %04d", version), func(t *testing.T) {
			t.Parallel()
			onEngines(t, func(t engineTest) {
				openAt(t.T, t.url, version)
				s := writer(t, t.url, "server-2")
				checkFixture(t.T, s)
				checkProgress(t.T, s, version)
				checkBooks(t.T, s, version)
				checkDocuments(t.T, s, version)
				checkMemory(t.T, s, version)
				checkLeadership(t.T, s, version)
				checkAgents(t.T, s, version)
				checkUIDs(t.T, s, version)
				checkCheckpoints(t.T, s, version)
				checkQuestions(t.T, s, version)
				checkProjects(t.T, s, version)
				checkNumbers(t.T, s, version)
				checkPossessions(t.T, s, version)
				checkIdentity(t.T, s, version)
				checkTotals(t.T, s, version)

				if err := s.Commit(t.Context(), batchOf(100)); err != nil {
					t.Errorf("commit after the migration: %v", err)
				}
			})
		})
	}
}

func checkFixture(t *testing.T, s *Store) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	counts := map[string]int{
		"jobs": len(state.Jobs), "runs": len(state.Runs), "nodes": len(state.Nodes), "users": len(state.Users),
		"tokens": len(state.Tokens), "orders": len(state.Orders), "needs": len(state.Needs),
		"last job": int(state.LastJob), "last event": int(state.LastEvent),
	}

	want := map[string]int{
		"jobs": 2, "runs": 1, "nodes": 1, "users": 1, "tokens": 1, "orders": 1, "needs": 1, "last job": 2, "last event": 3,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("loaded (-want +got):\n%s", diff)
	}

	jobs, err := s.Jobs(t.Context(), store.JobFilter{Node: "gpu-1", Name: "train", Owner: "ada", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}

	if len(jobs) != 1 || jobs[0].ID != "j2" || jobs[0].State != job.Running || jobs[0].Spec.Run != "python train.py" ||
		!jobs[0].Submitted.Equal(time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC)) {
		t.Errorf("jobs = %+v, want j2 as the fixture has it", jobs)
	}

	events, err := s.Events(t.Context(), store.EventFilter{Kind: "job", Job: "j2", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}

	if len(events) != 2 || events[1].To != "running" {
		t.Errorf("events = %+v, want the fixture's two of j2", events)
	}
}

// checkProgress checks the progress of the fixture's running job, which schema 1 did not store.
func checkProgress(t *testing.T, s *Store, version int) {
	t.Helper()
	j, err := s.Job(t.Context(), "j2")
	if err != nil {
		t.Fatal(err)
	}

	type progress struct {
		Done, Served float64
		Stops        int
	}

	want := progress{Done: 1234.5, Served: 7200.25, Stops: 2}
	if version < 2 {
		want = progress{}
	}

	if got := (progress{j.Done, j.Served, j.Stops}); got != want {
		t.Errorf("progress = %+v, want %+v", got, want)
	}
}

// checkBooks checks the ledger of the fixture, which earlier schemas did not have.
func checkBooks(t *testing.T, s *Store, version int) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	want := []int{0, 0, 0, 0, 0}
	if version >= 3 {
		want = []int{1, 1, 1, 1, 7}
	}

	got := []int{
		len(state.Leases),
		len(state.Datasets),
		len(state.Quotas),
		len(state.Ledger.Meters),
		int(state.Ledger.LastPosting),
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leases, datasets, limits, meters, last posting (-want +got):\n%s", diff)
	}
}

// checkDocuments checks the document of the fixture, which earlier schemas did not have.
func checkDocuments(t *testing.T, s *Store, version int) {
	t.Helper()
	docs, err := s.Documents(t.Context(), store.DocumentFilter{Kind: store.CurveDocument, Under: "j2", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}

	var want []store.Document
	if version >= 4 {
		want = []store.Document{
			{
				Kind: store.CurveDocument,
				ID:   "j2/val_loss",
				At:   time.Date(2026, 3, 1, 12, 1, 0, 0, time.UTC),
				Text: `{"name":"val_loss"}`,
			},
		}
	}

	if diff := cmp.Diff(want, docs, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
}

// checkMemory checks what the fixture's yard had learned, which earlier schemas did not store.
func checkMemory(t *testing.T, s *Store, version int) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	var past []queue.PastRun
	var observed []job.Observed
	if version >= 9 {
		past = []queue.PastRun{{Number: 3, User: "ada", Program: "prepare: prepare.py", GPUs: 1, Ran: time.Minute}}
		observed = []job.Observed{{
			Job: "j2", Startup: 5 * time.Second, Ran: 1, Done: 1234.5, At: time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC),
			Seen: []scaling.Observation{
				{Kind: "NVIDIA A100-SXM4-80GB", TFLOPS: 312, GPUs: 1, Nodes: 1, PerSecond: 12.5, Done: 1234.5},
			},
		}}
	}

	if diff := cmp.Diff(past, state.Past, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("past runs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(observed, state.Observed, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what was learned of jobs (-want +got):\n%s", diff)
	}
}

// checkLeadership checks that the new leader's term is greater than the fixture's, which earlier schemas did not have.
func checkLeadership(t *testing.T, s *Store, version int) {
	t.Helper()
	l, err := s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	before := int64(0)
	if version >= leadershipSince {
		before = 7
	}

	if l.Name != "server-2" || l.Term <= before {
		t.Errorf("leader = %+v, want server-2 with a term above %d", l, before)
	}
}

// agentsSince is the first schema that stores which agent speaks for a node.
const agentsSince = 11

// checkAgents checks the agent of the fixture's node, which earlier schemas did not store.
func checkAgents(t *testing.T, s *Store, version int) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	var want []fleet.Agent
	if version >= agentsSince {
		want = []fleet.Agent{{
			Node: "gpu-1", Process: "p1", Machine: "m1", Boot: "b1", Folder: "801:2", Started: time.Minute, Host: "gpu-1",
			Path: "/var/lib/trainyard/agent", Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		}}
	}

	if diff := cmp.Diff(want, state.Agents, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
}

// uidsSince is the first schema in which runs have UIDs.
const uidsSince = 12

// checkUIDs checks the marks of the fixture's run and yard, which earlier schemas did not have.
func checkUIDs(t *testing.T, s *Store, version int) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	number, uid := uint64(0), id.UID("")
	if version >= uidsSince {
		number, uid = 1, "f00f00f00f00f00f00f00f00f00f00f0"
	}

	if len(state.Runs) != 1 || state.Runs[0].UID != uid || state.Incarnation.Number != number {
		t.Errorf("runs %+v, incarnation %+v; want UID %q, number %d", state.Runs, state.Incarnation, uid, number)
	}
}

// checkpointsSince is the first schema with a catalogue of checkpoints.
const checkpointsSince = 13

// checkCheckpoints checks the checkpoints of the fixture, which earlier schemas did not have.
func checkCheckpoints(t *testing.T, s *Store, version int) {
	t.Helper()
	list, err := s.Checkpoints(t.Context(), store.CheckpointFilter{Job: "j2", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}

	var want []checkpoint.Checkpoint
	if version >= checkpointsSince {
		want = []checkpoint.Checkpoint{{
			ID: "j2.c2", Seq: 1, Job: "j2", Run: "j2.2", UID: "f00f00f00f00f00f00f00f00f00f00f0", Epoch: 2, Number: 2,
			Name: "step-200", Step: 200, Metric: "loss", Value: 0.5, Size: 1 << 30, Found: checkpoint.ByRename,
			State: checkpoint.Stored, Written: time.Date(2026, 3, 1, 12, 1, 11, 0, time.UTC),
			Added: time.Date(2026, 3, 1, 12, 1, 12, 0, time.UTC), Ranks: 1,
			Parts: []checkpoint.Part{{Node: "gpu-1", Manifest: "ab", Size: 1 << 30}},
		}}
	}

	if diff := cmp.Diff(want, list, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("checkpoints (-want +got):\n%s", diff)
	}
}

// questionsSince is the first schema that stores questions to people.
const questionsSince = 14

// checkQuestions checks the open question of the fixture, which earlier schemas did not store.
func checkQuestions(t *testing.T, s *Store, version int) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	var want []inbox.Question
	if version >= questionsSince {
		asked := time.Date(2026, 3, 1, 12, 1, 0, 0, time.UTC)
		want = []inbox.Question{{
			ID: "j2.q1", Seq: 3, Kind: inbox.Preempted, Job: "j2", Owner: "ada", State: inbox.Open,
			Sentence: "preempted by other work", Asked: asked, Since: asked,
			Options: []inbox.Option{{ID: "pause", Sentence: "pause it", Action: inbox.Action{Verb: inbox.Pause}}},
		}}
	}

	if diff := cmp.Diff(want, state.Questions, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

// projectsSince is the first schema with projects, and with what created a token.
const projectsSince = 15

// checkProjects checks the project and the token of the fixture, which earlier schemas stored without them. Tokens of
// earlier schemas that could create others can still do so.
func checkProjects(t *testing.T, s *Store, version int) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	var projects []tenant.Project
	var members []tenant.Member
	var parent id.Token
	var highest *int

	if version >= projectsSince {
		projects = []tenant.Project{{ID: "vision", Seq: 1}}
		members = []tenant.Member{{Project: "vision", User: "ada", Seq: 1}}
		parent, highest = "t0", new(70)
	}

	if diff := cmp.Diff(projects, state.Projects, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("projects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(members, state.Members, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(highest, state.Users[0].MaxPriority); diff != "" {
		t.Errorf("highest priority (-want +got):\n%s", diff)
	}

	got := state.Tokens[0]
	if got.Scope != tenant.ScopeTokens || got.Parent != parent || got.Login != (version >= projectsSince) {
		t.Errorf("token of scope %s, created with %q, at a login %v", got.Scope, got.Parent, got.Login)
	}
}

// The owners of the jobs of a project go on with it when its quota makes it one for its members.
func TestProjectsWithQuotasGetARecord(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		openAt(t.T, t.url, projectsSince-1)
		old := bare(t.T, t.url)

		for _, statement := range []string{
			`INSERT INTO records (kind, id, seq, doc) VALUES ('quota', 'project/vision', 1, '{"subject":{"project":"vision"},"seq":1}')`,
			`INSERT INTO records (kind, id, seq, doc)
				VALUES ('quota', 'project/past', 2, '{"subject":{"project":"past"},"seq":2,"removed":true}')`,
			`INSERT INTO records (kind, id, seq, doc) VALUES ('quota', 'each/project', 1, '{"subject":{"each":"project"},"seq":1}')`,
		} {
			if _, err := old.write.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}

		if err := old.Close(); err != nil {
			t.Fatal(err)
		}

		checkProjectOfAda(t.T, writer(t, t.url, "server-2"))
	})
}

func checkProjectOfAda(t *testing.T, s *Store) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]tenant.Project{{ID: "vision", Seq: 1}}, state.Projects); diff != "" {
		t.Errorf("projects (-want +got):\n%s", diff)
	}

	members, err := s.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	want := []tenant.Member{{Project: "vision", User: "ada", Seq: 1}}
	if diff := cmp.Diff(want, members); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// numbersSince is the first schema in which users have numbers.
const numbersSince = 16

// checkNumbers checks the number of the fixture's user. Users of earlier schemas are numbered by the migration.
func checkNumbers(t *testing.T, s *Store, version int) {
	t.Helper()
	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	number, last := 1, uint64(0)
	if version >= numbersSince {
		number, last = 7, 100
	}

	if len(state.Users) != 1 || state.Users[0].Number != number || state.Incarnation.Last.User != last {
		t.Errorf("users %+v, incarnation %+v; want number %d, last number %d", state.Users, state.Incarnation, number, last)
	}
}

// TestUsersAreNumberedByAge checks that the migration gives every user a number of their own, the oldest the first, and
// that two users of the same moment do not share one.
func TestUsersAreNumberedByAge(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		openAt(t.T, t.url, numbersSince-1)

		old := bare(t.T, t.url)
		_, err := old.write.ExecContext(t.Context(),
			`INSERT INTO users (id, seq, role, created, disabled, gpu_seconds, gpu_seconds_at) VALUES
			('zoe', 1, 'admin', 1, FALSE, 0, 0), ('cy', 1, 'researcher', 1772366400000000, FALSE, 0, 0)`)
		if err := errors.Join(err, old.Close()); err != nil {
			t.Fatal(err)
		}

		state, err := writer(t, t.url, "server-2").Load(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}

		got := map[id.User]int{}
		for i := range state.Users {
			got[state.Users[i].ID] = state.Users[i].Number
		}

		if diff := cmp.Diff(map[id.User]int{"zoe": 1, "ada": 2, "cy": 3}, got); diff != "" {
			t.Errorf("numbers (-want +got):\n%s", diff)
		}
	})
}

// possessionsSince is the first schema that stores who has uploaded what.
const possessionsSince = 17

// checkPossessions checks what the fixture's user possesses: before the schema with possessions the working directory
// of their job, whose files are not read yet.
func checkPossessions(t *testing.T, s *Store, version int) {
	t.Helper()

	submitted := time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC)
	want := []store.Possession{{Owner: "ada", Digest: "sha256:12", Size: store.UnreadManifest, Since: submitted}}
	held, bytes := []string{"sha256:12"}, int64(0)

	if version >= possessionsSince {
		want, held, bytes = nil, []string{"sha256:12", "sha256:34"}, 1120
	}

	unread, err := s.UnreadManifests(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, unread, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("manifests that are not read (-want +got):\n%s", diff)
	}

	got, err := s.Possessed(t.Context(), "ada", []string{"sha256:12", "sha256:34", "sha256:56"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(held, got); diff != "" {
		t.Errorf("possessed (-want +got):\n%s", diff)
	}

	if got, err := s.PossessedBytes(t.Context(), "ada"); got != bytes || err != nil {
		t.Errorf("%d bytes, %v; want %d", got, err, bytes)
	}
}

// identitySince is the first schema that stores from where events were caused, and the identity of nodes.
const identitySince = 18

// checkIdentity checks the origin of an event and the identity of a node, which earlier schemas did not store.
func checkIdentity(t *testing.T, s *Store, version int) {
	t.Helper()
	events, err := s.Events(t.Context(), store.EventFilter{Audit: true, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}

	state, err := s.Load(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	identity := state.Nodes[0].Identity
	if version < identitySince {
		if len(events) != 0 || identity.Certificate != "" {
			t.Errorf("audit %+v, identity %+v of an earlier schema", events, identity)
		}

		return
	}

	if len(events) != 1 || events[0].Token != "t1" || events[0].Address != "10.0.0.7" || events[0].Count != 2 {
		t.Errorf("audit = %+v", events)
	}

	if identity.Certificate != "ab12" || !identity.Issued.Equal(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("identity = %+v", identity)
	}
}

// booksSince is the first schema that has a ledger.
const booksSince = 3

// checkTotals checks the totals of the fixture's posting, of which those of earlier schemas are added up now.
func checkTotals(t *testing.T, s *Store, version int) {
	t.Helper()

	if _, err := s.RollUp(t.Context(), 100); err != nil {
		t.Fatal(err)
	}

	for _, of := range ledger.AllTotals() {
		var got []ledger.Amounts
		err := s.Postings(t.Context(), store.PostingFilter{Totals: of}, func(p *ledger.Posting) error {
			got = append(got, p.Amounts)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		var want []ledger.Amounts
		if version >= booksSince {
			want = []ledger.Amounts{{NodeTime: 60_000, GPUTime: 60_000, EnergyCost: 1000, Energy: 2000}}
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("totals by %s (-want +got):\n%s", of, diff)
		}
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := open(t, t.url)
		if _, err := s.write.ExecContext(t.Context(), `UPDATE meta SET schema_version = 99`); err != nil {
			t.Fatal(err)
		}

		_, err := Open(t.Context(), t.url, Options{})
		wantKind(t, err, fault.Conflict, "schema_too_new")

		if err == nil || !strings.Contains(err.Error(), "schema 99") || !strings.Contains(err.Error(), "newer one") {
			t.Errorf("error = %v, want one that names the schema and the remedy", err)
		}
	})
}

// nextSchema is all migrations and one more, whose text differs between the engines.
func nextSchema(t *testing.T, engine, text string) []migration {
	t.Helper()
	next := fmt.Sprintf("migrations/%04d_next", len(released())+1)
	files := fstest.MapFS{
		next + ".sqlite.sql":   {Data: []byte(text)},
		next + ".postgres.sql": {Data: []byte(text)},
	}

	for path := range released() {
		text, err := migrationFiles.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		files[path] = &fstest.MapFile{Data: text}
	}

	steps, err := readMigrations(files, engine)
	if err != nil {
		t.Fatal(err)
	}

	if len(steps) != len(released())+1 {
		t.Fatalf("%d migrations for %s, want %d", len(steps), engine, len(released())+1)
	}

	return steps
}

func TestMigrationIsDoneWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		s := open(t, t.url)
		bad := nextSchema(
			t.T,
			s.engine.name(),
			"ALTER TABLE nodes ADD COLUMN zone TEXT;\nALTER TABLE nowhere ADD COLUMN zone TEXT;\n",
		)

		if err := s.migrate(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "_next") {
			t.Errorf("error = %v, want one that names the migration", err)
		}

		good := nextSchema(t.T, s.engine.name(), "-- a zone; for later\nALTER TABLE nodes ADD COLUMN zone TEXT;\n")
		if err := s.migrate(t.Context(), good); err != nil {
			t.Fatal(err)
		}

		if version, err := s.schemaVersion(t.Context()); err != nil || version != int64(len(good)) {
			t.Errorf("version = %d, error %v, want %d", version, err, len(good))
		}
	})
}

func TestMigrationWaitsForTheWriter(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		first, second := writer(t, t.url, "server-1"), open(t, t.url)
		steps := nextSchema(t.T, first.engine.name(), "ALTER TABLE nodes ADD COLUMN zone TEXT;\n")
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()

		err := second.migrate(short, steps)
		if fault.KindOf(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want it to wait until its time is over", err)
		}

		if err := first.Commit(t.Context(), batchOf(1)); err != nil {
			t.Fatal(err)
		}

		if err := first.Close(); err != nil {
			t.Fatal(err)
		}

		if err := second.migrate(t.Context(), steps); err != nil {
			t.Error(err)
		}
	})
}

func TestMigrationsMustBeNumberedWithoutGaps(t *testing.T) {
	t.Parallel()

	for _, names := range [][]string{{"0002_a"}, {"0001_a", "0003_b"}, {"0001_a", "0001_b"}, {"first"}} {
		files := fstest.MapFS{}
		for _, name := range names {
			files["migrations/"+name+".sql"] = &fstest.MapFile{Data: []byte("SELECT 1;")}
		}

		if _, err := readMigrations(files, "sqlite"); err == nil {
			t.Errorf("%v: want an error", names)
		}
	}
}
