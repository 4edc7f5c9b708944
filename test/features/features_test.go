// Package features holds every policy of the catalogue against every feature of the yard: each
// cell of the table is a few small simulated worlds in which the feature matters. The table in
// the reference is written from what came of it.
package features_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
)

// result is what came of a world.
type result struct {
	outcomes map[string]*sim.Outcome
	leases   map[id.Lease]fleet.Lease
	log      string
}

// simulate runs a world under a policy.
func simulate(t *testing.T, w *world, p place.Policy) *result {
	t.Helper()

	s, err := scenario.Parse(w.name, []byte(w.text))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := s.Config(1, s.Seed)
	if err != nil {
		t.Fatal(err)
	}

	if cfg.Until == 0 {
		cfg.Until = 72 * time.Hour // a job that never starts must not keep the test
	}

	r := &result{outcomes: map[string]*sim.Outcome{}, leases: map[id.Lease]fleet.Lease{}}
	log := bytes.Buffer{}
	cfg.Policy, cfg.Log = p, &log
	cfg.OnEnd = func(o *sim.Outcome) {
		copied := *o
		r.outcomes[o.Job.Name] = &copied
	}
	cfg.OnLease = func(l *fleet.Lease) { r.leases[l.ID] = *l }

	if _, err := s.Simulate(cfg); err != nil {
		t.Fatal(err)
	}

	r.log = log.String()

	return r
}

// check is what a world must come to.
type check func(r *result) string

func all(checks ...check) func(*result) string {
	return func(r *result) string {
		for _, c := range checks {
			if wrong := c(r); wrong != "" {
				return wrong
			}
		}

		return ""
	}
}

func at(text string) time.Duration {
	d, err := job.ParseDuration(text)
	if err != nil {
		panic(err)
	}

	return time.Duration(d)
}

func startsBetween(name, from, to string) check {
	return func(r *result) string {
		o := r.outcomes[name]
		switch {
		case o == nil || o.Started == sim.NotStarted:
			return name + " does not start or does not end"
		case o.Started < at(from) || o.Started > at(to):
			return fmt.Sprintf("%s starts at %s, want %s to %s", name, o.Started, from, to)
		}

		return ""
	}
}

func startsAt(name, when string) check { return startsBetween(name, when, when) }
func startsBy(name, when string) check { return startsBetween(name, "0s", when) }

func neverStartsBefore(name, when string) check {
	return func(r *result) string {
		if o := r.outcomes[name]; o != nil && o.Started != sim.NotStarted && o.Started < at(when) {
			return fmt.Sprintf("%s starts at %s", name, o.Started)
		}

		return ""
	}
}

func succeeds(name string) check {
	return func(r *result) string {
		if o := r.outcomes[name]; o == nil || o.State != job.Succeeded {
			return name + " does not succeed"
		}

		return ""
	}
}

func runs(name string, n int) check {
	return func(r *result) string {
		if o := r.outcomes[name]; o == nil || o.Runs != n {
			return fmt.Sprintf("%s does not have %d runs", name, n)
		}

		return ""
	}
}

// leases wants so many leases in all.
func leases(n int) check {
	return func(r *result) string {
		if len(r.leases) != n {
			return fmt.Sprintf("%d leases, want %d", len(r.leases), n)
		}

		return ""
	}
}

func allReleased(r *result) string {
	for name, l := range r.leases {
		if !l.State.Final() {
			return fmt.Sprintf("lease %s is %s at the end", name, l.State)
		}
	}

	return ""
}

var running = regexp.MustCompile(`running on (\S+)(?: and \d+ more)? with (\d+) GPU`)

// ranOn wants every run of a job to be on the named nodes, of which the log names the first.
func ranOn(name string, nodes ...string) check {
	return func(r *result) string {
		for _, m := range r.runLines(name) {
			if !slices.Contains(nodes, m[1]) {
				return fmt.Sprintf("%s runs on %s, want one of %v", name, m[1], nodes)
			}
		}

		return ""
	}
}

func gpusBetween(name string, least, most int) check {
	return func(r *result) string {
		lines := r.runLines(name)
		if len(lines) == 0 {
			return name + " does not run"
		}

		for _, m := range lines {
			if n, err := strconv.Atoi(m[2]); err != nil || n < least || n > most {
				return fmt.Sprintf("%s runs with %s GPUs, want %d to %d", name, m[2], least, most)
			}
		}

		return ""
	}
}

func (r *result) runLines(name string) [][]string {
	var list [][]string
	for line := range strings.Lines(r.log) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == name {
			if m := running.FindStringSubmatch(line); m != nil {
				list = append(list, m)
			}
		}
	}

	return list
}

func TestEveryPolicyWithEveryFeature(t *testing.T) {
	t.Parallel()

	registry := catalogue.All(nil)
	for _, name := range registry.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			make, err := registry.Make(name)
			if err != nil {
				t.Fatal(err)
			}

			for _, f := range features() {
				for _, w := range f.worlds {
					r := simulate(t, &w, make())
					if wrong := w.wants(r); wrong != "" {
						t.Errorf("%s, %s: %s\n%s", f.name, w.name, wrong, r.log)
					}
				}
			}
		})
	}
}
