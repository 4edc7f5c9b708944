// Package features holds every policy of the catalogue against every feature of the yard: each
// cell of the table is a few small simulated worlds in which the feature matters. The table in
// the reference is written from what came of it.
package features_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/place/lp"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
	"trainyard/test/golden"
)

// result is what came of a world.
type result struct {
	outcomes map[string]*sim.Outcome
	leases   map[id.Lease]fleet.Lease
	log      string
}

// simulate runs a world under a policy.
func simulate(t *testing.T, w *world, p place.Policy) (*result, error) {
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

	_, err = s.Simulate(cfg)
	r.log = log.String()

	return r, err
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

// page is where the table is kept.
const page = "../../docs/reference/policies.md"

// TestEveryPolicyWithEveryFeature runs the worlds of every cell and compares the table with the page.
func TestEveryPolicyWithEveryFeature(t *testing.T) {
	t.Parallel()

	registry := catalogue.All(nil)
	cells := map[string][]string{}

	for _, name := range registry.Names() {
		make, err := registry.Make(name)
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range features() {
			cells[name] = append(cells[name], cell(t, &f, make))
		}

		cells[name] = append(cells[name], shares(t, make))
	}

	if !t.Failed() {
		golden.Compare(t, page, table(registry, cells))
	}
}

// cell runs the worlds of a feature under a policy, and returns what the table says of them. A
// policy that declares that it cannot work with the feature must be refused, and one that does
// not must get every world right.
func cell(t *testing.T, f *feature, make func() place.Policy) string {
	t.Helper()

	p := make()
	if refusal := place.Refusal(p, place.Feature(f.name)); refusal != nil {
		for _, w := range f.worlds {
			if _, err := simulate(t, &w, make()); err == nil || err.Error() != refusal.Error() {
				t.Errorf("%s declares that it refuses %s, and simulates %s: %v", p.Name(), f.name, w.name, err)
			}
		}

		return "refused"
	}

	for _, w := range f.worlds {
		r, err := simulate(t, &w, make())
		if err != nil {
			t.Errorf("%s, %s, %s: %v", p.Name(), f.name, w.name, err)
			continue
		}

		if wrong := w.wants(r); wrong != "" {
			t.Errorf("%s, %s, %s: %s\n%s", p.Name(), f.name, w.name, wrong, r.log)
		}
	}

	return "yes"
}

// shares runs two jobs that ask for half a GPU where there is one, and returns what the table says of that.
func shares(t *testing.T, make func() place.Policy) string {
	t.Helper()

	p := make()
	says, starts := "whole", neverStartsBefore("second", "1h")
	if place.Shares(p) {
		says, starts = "yes", startsBy("second", "2m")
	}

	w := &world{"two halves", `
node own 1x A100:40GB
job first at 0s user ann gpu_share 0.5 lasts 1h expect 1h deadline 10h checkpoint none
job second at 1m user bob gpu_share 0.5 lasts 1h expect 1h deadline 10h checkpoint none
`, all(startsAt("first", "0s"), starts, succeeds("second"))}

	r, err := simulate(t, w, p)
	if err != nil {
		t.Fatal(err)
	}

	if wrong := w.wants(r); wrong != "" {
		t.Errorf("%s, %s: %s\n%s", p.Name(), w.name, wrong, r.log)
	}

	return says
}

// table writes the page.
func table(registry place.Registry, cells map[string][]string) string {
	b := strings.Builder{}
	b.WriteString(heading)
	b.WriteString("## Features\n\nEvery cell of the table is tested in small simulated yards in which the feature matters.\n\n")

	for _, f := range features() {
		fmt.Fprintf(&b, "- **%s**: %s\n", f.name, f.means)
	}

	b.WriteString("- **shares**: jobs that ask for a part of a GPU share one; with `whole` they get a whole one each\n")

	b.WriteString("\n| policy |")
	for _, f := range features() {
		fmt.Fprintf(&b, " %s |", f.name)
	}

	b.WriteString(" shares |\n| --- |" + strings.Repeat(" --- |", len(features())+1) + "\n")

	for _, name := range registry.Names() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, strings.Join(cells[name], " | "))
	}

	b.WriteString("\n## Refused combinations\n\n| combination | when | reason |\n| --- | --- | --- |\n")

	for _, r := range refusals() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.what, r.when, r.says)
	}

	return b.String()
}

const heading = `# Policies and features

Written by ` + "`make generate`" + ` from the test of every policy with every feature (test/features).
How to choose a policy: [Policies and tariff](../operators/policies.md).

`

// refusal is a combination that is refused, with the sentence.
type refusal struct{ what, when, says string }

func refusals() []refusal {
	return []refusal{
		{"`harvest` with `at_most`, and clouds", "start of the server", refusedText(harvestWithCondition)},
	}
}

// harvestWithCondition is a policy that refuses clouds because of a parameter.
const harvestWithCondition = `harvest:at_most="alice: 1 <= 8"`

// withSolver is the catalogue on a machine with a solver, which these tests do not call.
func withSolver() place.Registry {
	return catalogue.All(func(*lp.Model) (*lp.Solution, error) { return &lp.Solution{}, nil })
}

func refusedText(policy string) string {
	make, err := withSolver().Make(policy)
	if err != nil {
		return err.Error()
	}

	err = place.Refusal(make(), place.Clouds)
	if err == nil {
		return "not refused"
	}

	return sentence(err)
}

// sentence is the message of an error without its remedy.
func sentence(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}

	return err.Error()
}

// TestRefusedCombinationsAreNotSimulated: what a policy declares, simulator and server hold.
func TestRefusedCombinationsAreNotSimulated(t *testing.T) {
	t.Parallel()

	make, err := withSolver().Make(harvestWithCondition)
	if err != nil {
		t.Fatal(err)
	}

	clouds := features()[0]
	if got := cell(t, &clouds, make); got != "refused" {
		t.Errorf("harvest with a condition and clouds: %s", got)
	}

	for _, r := range refusals() {
		if r.says == "" || r.says == "not refused" {
			t.Errorf("%s is %s", r.what, r.says)
		}
	}
}
