package cli

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

func someJobs() []api.Job {
	return []api.Job{
		{
			ID:        "j9",
			Name:      "llama-sft",
			Owner:     "ada",
			State:     job.Pending,
			Status:    job.StatusPending,
			Priority:  10,
			Reason:    "waits for 8 GPUs; j7 of grace holds them",
			Resources: "8× A100 80GB",
			Submitted: ago(40 * time.Second),
			Since:     ago(40 * time.Second),
			Deadline:  new(now.Add(50 * time.Hour)),
			LateCost:  2_500_000,
			Done:      new(43.2e6),
			Work:      130e6,
			Percent:   new(33.2),
		},
		{
			ID:        "j7",
			Name:      "resnet50",
			Owner:     "grace",
			State:     job.Running,
			Status:    job.StatusRunning,
			Epoch:     2,
			Project:   "vision",
			Reason:    "runs on box1",
			Resources: "8× A100 80GB",
			Submitted: ago(3 * time.Hour),
			Since:     ago(2 * time.Hour),
			Started:   new(ago(167 * time.Minute)),
			Ran:       job.Duration(133 * time.Minute), // it waited between its two runs
			Nodes:     []id.Node{"box1"},
			FakeGPUs:  true,
		},
		{
			ID:        "j6",
			Name:      "evil\x1b[2J\nname",
			Owner:     "ada",
			State:     job.Failed,
			Status:    job.StatusOutOfMemory,
			Cause:     job.CauseHostOOM,
			Epoch:     1,
			Reason:    "out of memory",
			Resources: "1 CPU, 256MB",
			Submitted: ago(26 * time.Hour),
			Since:     ago(20 * time.Hour),
			Started:   new(ago(25 * time.Hour)),
			Ended:     new(ago(20 * time.Hour)),
			ExitCode:  new(137),
		},
	}
}

func someNodes() []api.Node {
	gpus := func(n int, model string, gb job.Bytes, busy int, fake bool) (list []api.GPU) {
		for i := range n {
			g := api.GPU{
				Index:  i,
				UUID:   "GPU-" + string(rune('a'+i)),
				Model:  model,
				Memory: gb << 30,
				State:  fleet.GPUIdle,
				Fake:   fake,
			}

			if i < busy {
				g.State, g.Job = fleet.GPURunning, "j7"
			}

			list = append(list, g)
		}

		return list
	}

	return []api.Node{
		{
			ID:       "box1",
			Class:    fleet.Local,
			State:    "running",
			Since:    ago(time.Hour),
			LastSeen: new(ago(2 * time.Second)),
			CPUs:     16000,
			CPUsFree: 8000,
			Memory:   64 << 30,
			MemFree:  40 << 30,
			Disk:     1 << 40,
			OS:       "linux",
			Arch:     "amd64",
			Address:  "10.0.0.1",
			Version:  "1.2.3",
			Limits:   "cgroup v2",

			Isolation: fleet.IsolationNone, SingleUser: true, Tenant: "ada",
			Metadata: "not blocked: jobs run under the agent's user id",
			Snapshots: &fleet.Snapshots{
				Suspend: fleet.Ability{Reason: "its GPUs are fake"}, Process: fleet.Ability{OK: true},
				GPU: fleet.Ability{Reason: "its GPUs are fake"},
			},
			GPUs:     gpus(8, "NVIDIA A100-SXM4-80GB", 80, 8, true),
			FakeGPUs: true,
			Jobs:     []id.Job{"j7"},
			Runs:     []api.NodeRun{{Run: "j7.2", Job: "j7", GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}, Since: ago(2 * time.Hour)}},
			TFLOPS:   1872,
			Origin:   "table",
			Watts:    3200,
			Draw:     2410,
			Price:    &api.Price{NodeCost: 1.5, EnergyCost: 0.96, Hourly: 2.46, Idle: 1.62},
		},
		{
			ID:       "box2",
			Class:    fleet.Reserved,
			Pool:     "spare",
			State:    "idle",
			Cordoned: true,
			LastSeen: new(ago(time.Second)),
			CPUs:     4000,
			CPUsFree: 4000,
			Memory:   15 << 30,
			MemFree:  15 << 30,
			OS:       "linux",
			Arch:     "arm64",
			Address:  "10.0.0.2",
			Version:  "1.2.3",
		},
		{
			ID:       "box3",
			Class:    fleet.OnDemand,
			State:    "lost",
			Reason:   "silent for 5m",
			LastSeen: new(ago(2 * time.Hour)),
			CPUs:     8000,
			CPUsFree: 8000,
			Memory:   32 << 30,
			MemFree:  32 << 30,
			OS:       "linux",
			Arch:     "amd64",
			GPUs:     gpus(2, "NVIDIA GeForce RTX 4090", 24, 0, false),
			TFLOPS:   260,
			Origin:   "mixed",
			Watts:    900,
			Price:    &api.Price{NodeCost: 1.1, Hourly: 1.1, Idle: 1.1},
			Lease: &api.NodeLease{
				ID:    "l4",
				Offer: "aws/g4/north",
				State: fleet.LeaseActive,
				Ends:  new(now.Add(20 * time.Minute)),
			},
		},
	}
}

func detail() api.JobDetail {
	d := api.JobDetail{Job: someJobs()[0]}
	d.Spec = json.RawMessage(
		`{"name":"llama-sft","run":"python train.py\npython eval.py","deadline":"2026-03-03T14:00:00Z","late_cost":"$2.5","speed":{"work":130000000,"rates":[{"gpu":"A100:80GB","gpus":8,"per_second":900}],"start":"45s"},"resources":{"gpus":"8","gpu":["A100:80GB"],"nodes":"1","cpus":"8"},"place":"any","env":{"SEED":"1"}}`,
	)
	d.Epoch = 1
	d.Runs = []api.Run{
		{
			ID:      "j9.1",
			Epoch:   1,
			State:   job.RunEnded,
			Cause:   job.CauseNodeLost,
			Ordered: ago(2 * time.Hour),
			Started: new(ago(2 * time.Hour)),
			Ended:   new(ago(time.Hour)),
			Ranks: []api.Rank{
				{
					Rank:   0,
					Node:   "box3",
					GPUs:   []int{0, 1},
					State:  job.RunEnded,
					Cause:  job.CauseNodeLost,
					Reason: "the node stopped responding",
				},
				{
					Rank:     1,
					Node:     "box4",
					GPUs:     []int{0, 1},
					State:    job.RunEnded,
					ExitCode: new(143),
					Signal:   "SIGTERM",
					Reason:   "stopped with rank 0",
				},
			},
		},
	}

	d.Why = &api.Why{
		Blocker:  "resources",
		Sentence: "It waits for 8 GPUs that j7 holds.",
		Position: 1,
		Start:    new(now.Add(90 * time.Minute)),
		Holders: []api.Holder{
			{Job: "j7", Owner: "grace", Node: "box1", GPUs: 8, CPUs: 8000, Until: new(now.Add(90 * time.Minute))},
		},
		Remedies: []string{"ask for 2 GPUs: they are free on box3"},
	}

	return d
}

// full is a yard with something of everything.
func full(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.list(someJobs()...)
	y.answer("GET /api/v1/jobs/j9", detail())
	y.answer("GET /api/v1/jobs/j9/metrics", api.MetricList{Metrics: []api.Metric{}})
	y.answer("GET /api/v1/nodes", api.NodePage{Nodes: someNodes()})
	y.answer("GET /api/v1/nodes/box1", someNodes()[0])

	y.answer("GET /api/v1/users", api.UserPage{Users: []api.User{
		{ID: "ada", Role: tenant.Researcher, Created: ago(50 * 24 * time.Hour), Usage: 3600 * 12.5},
		{ID: "root", Role: tenant.Admin, Created: ago(90 * 24 * time.Hour), Disabled: true},
	}})

	y.answer("GET /api/v1/tokens", api.TokenPage{Tokens: []api.Token{
		{
			ID:       "aaaaaaaaaa",
			Kind:     tenant.AccessToken,
			Owner:    "ada",
			Scope:    tenant.ScopeSubmit,
			Note:     "laptop",
			Created:  ago(time.Hour),
			Expires:  now.Add(29 * 24 * time.Hour),
			LastUsed: new(ago(time.Minute)),
		},
		{
			ID:       "bbbbbbbbbb",
			Kind:     tenant.JoinToken,
			Owner:    "root",
			Class:    "local",
			Pool:     "a100",
			UsesLeft: 3,
			Created:  ago(time.Minute),
			Expires:  now.Add(time.Hour),
		},
		{
			ID:      "cccccccccc",
			Kind:    tenant.AccessToken,
			Owner:   "ada",
			Scope:   tenant.ScopeRead,
			Created: ago(48 * time.Hour),
			Expires: ago(time.Hour),
		},
	}})

	y.answer("GET /api/v1/events", api.EventPage{Events: []api.Event{
		{Seq: 41, At: ago(time.Hour), Kind: "job", Actor: "ada", Owner: "ada", Job: "j7", To: "pending", Reason: "submitted"},
		{
			Seq:   42,
			At:    ago(time.Minute),
			Kind:  "run",
			Actor: "yard",
			Job:   "j7",
			Run:   "j7.2",
			Node:  "box1",
			From:  "ordered",
			To:    "running",
		},
	}})

	y.answer(
		"GET /api/v1/whoami",
		api.Whoami{
			User:    "ada",
			Role:    tenant.Researcher,
			Scope:   tenant.ScopeSubmit,
			Token:   "aaaaaaaaaa",
			Expires: now.Add(29 * 24 * time.Hour),
		},
	)

	y.answer(
		"GET /api/v1/info",
		api.Info{
			Version:    "1.2.4",
			Capability: 1,
			CAHash:     "ab12",
			Policy:     "fifo",
			Store:      "sqlite",
			Started:    ago(49 * time.Hour),
			Now:        now,
		},
	)

	return y
}

func TestTablesLookAsTheyAreDrawn(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"jobs": {"jobs", "--all"}, "jobs-wide": {"jobs", "--all", "-o", "wide"}, "jobs-quiet": {"jobs", "--all", "-q"},
		"jobs-json": {"jobs", "--all", "-o", "json"}, "jobs-yaml": {"jobs", "--all", "-o", "yaml"},
		"job": {"job", "j9"}, "job-yaml": {"job", "j9", "-o", "yaml"},
		"nodes": {"nodes"}, "nodes-wide": {"nodes", "-o", "wide"}, "node": {"nodes", "box1"}, "nodes-quiet": {"nodes", "-q"},
		"users": {"users"}, "tokens": {"tokens"}, "events": {"events"}, "whoami": {"whoami"},
		"version": {"version"}, "version-json": {"version", "-o", "json"},
		"help": {"--help"}, "help-exit-codes": {"help", "exit-codes"}, "help-submit": {"submit", "--help"},
	}

	y := full(t)
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t).at(t, y)
			if code := p.types(t.Context(), args...); code != exit.OK {
				t.Fatalf("exit code %d: %s", code, p.stderr)
			}

			if text := p.stderr.String(); text != "" {
				t.Errorf("stderr has %q", text)
			}

			golden(t, name, strings.NewReplacer(y.URL, "https://yard", y.ca.Hash(), "5f0c…").Replace(p.stdout.String()))
		})
	}
}

func TestATerminalGetsColoursCutLinesAndHints(t *testing.T) {
	t.Parallel()
	y := full(t)
	see := func(setup func(*person), args ...string) (string, string) {
		p := newPerson(t).at(t, y)
		p.terminal = true
		p.env.Width = func() int { return 100 }
		setup(p)

		if code := p.types(t.Context(), args...); code != exit.OK {
			t.Fatalf("exit code %d: %s", code, p.stderr)
		}

		return p.stdout.String(), p.stderr.String()
	}

	plain := func(*person) {}
	out, _ := see(plain, "jobs", "--all")
	golden(t, "jobs-terminal", out)

	if !strings.Contains(out, "\x1b[31mOUT_OF_MEMORY\x1b[0m") {
		t.Errorf("the status has no colour: %q", out)
	}

	_, hints := see(plain, "job", "j9")
	if !strings.Contains(hints, "Next:\n  trainyard logs -f j9") {
		t.Errorf("no hint in %q", hints)
	}

	for name, setup := range map[string]func(*person){
		"NO_COLOR":    func(p *person) { p.vars["NO_COLOR"] = "1" },
		"TERM=dumb":   func(p *person) { p.vars["TERM"] = "dumb" },
		"no terminal": func(p *person) { p.terminal = false },
	} {
		if out, _ := see(setup, "jobs", "--all"); strings.Contains(out, "\x1b") {
			t.Errorf("%s: there are escapes in %q", name, out)
		}
	}

	if out, _ := see(plain, "jobs", "--all", "--no-color"); strings.Contains(out, "\x1b") {
		t.Errorf("--no-color: there are escapes in %q", out)
	}
}

func TestEveryCommandHasExamplesAndAGroup(t *testing.T) {
	t.Parallel()
	root := New(newPerson(t).env)
	for _, c := range root.Commands() {
		if c.Name() == "exit-codes" || c.Name() == "help" || c.Name() == "completion" {
			continue
		}

		if c.GroupID == "" {
			t.Errorf("%s is in no group", c.Name())
		}

		for _, sub := range append(c.Commands(), c) {
			if sub.Example == "" || sub.Short == "" {
				t.Errorf("%s lacks an example or a short text", sub.CommandPath())
			}
		}
	}
}

func TestJobsWithoutFlagsShowsActiveAndRecentlyEnded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/whoami", api.Whoami{User: "ada"})

	y.list(append(
		someJobs(),
		api.Job{ID: "j5", State: job.Succeeded, Ended: new(ago(25 * time.Hour))},
		api.Job{ID: "j4", State: job.Paused},
	)...)

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "jobs", "--owner", "me", "--name", "x", "--node", "box1", "-q"); code != exit.OK ||
		p.stderr.String() != "" {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	if got := p.stdout.String(); got != "j7\nj9\nj4\nj6\n" {
		t.Errorf("listed %q: want those that run, those that wait and those that ended within a day, newest first", got)
	}

	want := []string{
		"GET /api/v1/whoami",
		"GET /api/v1/jobs?limit=500&name=x&node=box1&owner=ada&state=pending&state=starting&state=running&state=recovering&state=pausing&state=paused&state=cancelling",
		"GET /api/v1/jobs?limit=500&name=x&node=box1&owner=ada&since=2026-01-29T12%3A00%3A00Z&state=succeeded&state=failed&state=cancelled",
	}

	if diff := cmp.Diff(want, y.called()); diff != "" {
		t.Errorf("calls differ (-want +got):\n%s", diff)
	}

	p = newPerson(t).at(t, y)
	if code := p.types(t.Context(), "jobs", "-q", "--since", "2d", "--state", "succeeded", "--state",
		"Paused"); code != exit.OK ||
		p.stdout.String() != "j4\nj5\n" {
		t.Errorf("exit code %d, listed %q: %s", code, p.stdout, p.stderr)
	}
}

// TestRunningJobsAreNeverHidden is newcomer 3: a running job vanished behind 50 newer ones that had ended.
func TestRunningJobsAreNeverHidden(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	all := []api.Job{{ID: "j1", Name: "long", State: job.Running}, {ID: "j2", Name: "queued", State: job.Pending}}
	for n := range 55 {
		all = append(all, api.Job{ID: id.NewJob(uint64(60 - n)), State: job.Succeeded, Ended: new(ago(time.Minute))})
	}

	y.list(all...)

	for _, flags := range [][]string{nil, {"--all"}, {"--since", "2d"}} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), append([]string{"jobs", "-q", "--limit", "2"}, flags...)...); code != exit.OK {
			t.Fatalf("%v: exit code %d: %s", flags, code, p.stderr)
		}

		if got := p.stdout.String(); got != "j1\nj2\nj60\nj59\n" ||
			!strings.Contains(p.stderr.String(), "Showing the newest 2 ended jobs; use --limit for more.") {
			t.Errorf("%v: listed %q: %s", flags, got, p.stderr)
		}
	}
}

func TestTheNewestEventsAreShown(t *testing.T) {
	t.Parallel()

	for _, knowsTail := range []bool{true, false} {
		y := newYard(t)
		y.mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			number := func(name string) int {
				n, err := strconv.Atoi(q.Get(name))
				if err != nil && q.Get(name) != "" {
					t.Error(err)
				}

				return n
			}

			after := number("cursor")
			if q.Get("cursor") == "" && knowsTail {
				after = 1200 - number("tail")
			}

			page := api.EventPage{Events: []api.Event{}, Next: strconv.Itoa(after)}
			for n := after + 1; n <= min(1200, after+number("limit")); n++ {
				page.Events, page.Next = append(page.Events, api.Event{Seq: uint64(n)}), strconv.Itoa(n)
			}

			reply(w, http.StatusOK, page)
		})

		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), "events", "--limit", "3", "-o", "json"); code != exit.OK {
			t.Fatalf("exit code %d: %s", code, p.stderr)
		}

		var page api.EventPage
		if err := json.Unmarshal([]byte(p.stdout.String()), &page); err != nil {
			t.Fatal(err)
		}

		if len(page.Events) != 3 || page.Events[0].Seq != 1198 || page.Next != "1200" {
			t.Errorf("a server that knows tail %v: %+v", knowsTail, page)
		}

		p = newPerson(t).at(t, y)
		if code := p.types(t.Context(), "events", "--after", "7", "--limit", "2"); code != exit.OK ||
			!strings.Contains(p.stdout.String(), "\n8 ") ||
			strings.Contains(p.stdout.String(), "\n10 ") {
			t.Errorf("--after: exit code %d: %s", code, p.stdout)
		}
	}
}
