package scenario_test

import (
	"strings"
	"testing"

	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
)

// crowd is a yard in which jobs of three users would share nodes: gangs, elastic jobs, jobs of many sizes.
const crowd = `# A day of jobs by three people.
policy fifo
seed 3
node n[1..3] 4x V100:16GB KEY

workload poisson jobs 40 every 10m gpus 1,2,4 shares 0.6,0.3,0.1 median 45m sigma 0.8 users 3
job wide  at 10m gpus 1..4 work 7200 speed 1:1,2:1.9,4:3.5 user user1
job grows at 20m gpus 1..4 work 7200 speed 1:1,2:1.9,4:3.5 user user2
job gang  at 30m gpus 2 nodes 2 lasts 30m user user3
`

// mixed returns how often jobs of two users were on a node at a time, and how many jobs have succeeded.
func mixed(t *testing.T, text, policy string) (mixed, succeeded int) {
	t.Helper()
	s, err := scenario.Parse("crowd", []byte(text))
	if err != nil {
		t.Fatal(err)
	}

	newPolicy, err := policies().Make(policy)
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := s.Config(1, s.Seed)
	if err != nil {
		t.Fatal(err)
	}

	owners := map[string]string{}
	cfg.Policy, cfg.Keep = newPolicy(), 1<<16
	cfg.OnEnd = func(o *sim.Outcome) { owners[o.Job.Name] = string(o.Job.Owner) }

	r, err := s.Simulate(cfg)
	if err != nil {
		t.Fatal(err)
	}

	for i, a := range r.Spans {
		for _, b := range r.Spans[:i] {
			if a.Node == b.Node && a.From < b.To && b.From < a.To && owners[a.Job] != owners[b.Job] {
				mixed++
			}
		}
	}

	return mixed, r.Succeeded
}

// TestNoPolicyMixesUsersWhereNothingIsolatesThem simulates the same jobs under every policy, on nodes that run
// jobs of one user at a time and on nodes that isolate users.
func TestNoPolicyMixesUsersWhereNothingIsolatesThem(t *testing.T) {
	t.Parallel()

	for _, policy := range policies().Names() {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()

			if n, ended := mixed(t, strings.Replace(crowd, "KEY", "single_user", 1), policy); n > 0 || ended != 43 {
				t.Errorf("jobs of different users were on one node %d times; %d of 43 jobs succeeded", n, ended)
			}

			if n, _ := mixed(t, strings.Replace(crowd, "KEY", "", 1), policy); n == 0 {
				t.Error("users were not mixed on nodes that isolate them either: the test shows nothing")
			}
		})
	}
}
