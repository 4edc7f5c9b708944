// Package scenario reads small worlds that a person writes as text: a cluster, a
// workload, faults, a policy, and the decisions that are expected.
//
// A scenario is one file of lines. Each line says one thing: a node, a job,
// something that happens. It serves three ends at once: a test, whose expected
// decisions stand below the line "expect:"; a page of documentation, since the
// decisions are logged in words; and an input of trainyard simulate. Every mistake
// is reported with its file, line and column. The package makes a sim.Config of a
// scenario and runs it; it decides nothing about jobs, and the files themselves
// are read by the caller. The tests of this package run all of scenarios/.
package scenario

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/sim"
)

// The limits on what a scenario may hold.
const (
	maxText  = 4 << 20 // bytes
	maxNodes = 100_000
	maxJobs  = 100_000 // written out; generated ones are not counted here
	maxWrong = 50      // mistakes that are reported at once
)

// Scenario is a world as it was written.
type Scenario struct {
	Name      string // of the file, without its folder and ending
	About     string // what the comment at the top says
	Policy    string // as place.Registry reads it: a name, and parameters behind colons
	Seed      uint64
	Until     time.Duration // 0 to go on until all jobs have ended
	Still     time.Duration // when five more rounds must change nothing; none if negative
	Expect    string        // the decisions, as in the log
	HasExpect bool          // there is an expected part, even if it is empty

	file      string // as messages call it
	folder    string // what trace files are found from
	text      string // above the expected part
	detect    time.Duration
	shares    bool // a job names its user, so that fair share counts
	nodes     []fleet.Node
	nodeNames map[id.Node]bool
	groups    []group
	changes   []sim.Change // written out, in order of the text
	chances   []chance
	energy    money.PerKWh
	pue       float64
	prices    []pricing
	jobs      []*sim.Job
	names     map[string]bool
	loads     []workload
	hybrid    hybrid
}

// Parse reads a scenario. The name is that of its file: messages quote it, and
// traces are found from its folder. The error is a fault.List of all mistakes.
func Parse(file string, text []byte) (*Scenario, error) {
	s := &Scenario{
		Name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), file: file, folder: filepath.Dir(file),
		Seed: 1, Still: -1, detect: time.Minute, nodeNames: map[id.Node]bool{}, names: map[string]bool{},
	}

	if len(text) > maxText {
		return nil, fault.List{
			fault.New(fault.Invalid, "too_large", "%s has %d bytes; the maximum is %d", file, len(text), maxText),
		}
	}

	var expect string
	s.text, expect, s.HasExpect = cutExpect(strings.ReplaceAll(string(text), "\r\n", "\n"))
	s.Expect = tidy(expect)
	s.About = about(s.text)
	wrong := s.read()
	if len(wrong) == 0 {
		wrong = s.check()
	}

	return s, wrong.OrNil()
}

// expectMark is the line above the expected decisions.
const expectMark = "expect:"

// cutExpect splits a text at the line above the expected decisions.
func cutExpect(text string) (above, below string, found bool) {
	at := 0
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \t\n") == expectMark {
			return text[:at], text[at+len(line):], true
		}

		at += len(line)
	}

	return text, "", false
}

// tidy takes off what an editor may add to lines or leave out: blanks at their
// ends, and empty lines at the end of all.
func tidy(text string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, " \t\n")) {
		out.WriteString(strings.TrimRight(line, " \t\n") + "\n")
	}

	return out.String()
}

// about returns the comment at the top, as one text.
func about(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok {
			break
		}

		words = append(words, strings.TrimSpace(comment))
	}

	return strings.Join(words, " ")
}

// With returns the text of the scenario with these expected decisions.
func (s *Scenario) With(decisions string) string {
	return strings.TrimRight(s.text, "\n") + "\n\n" + expectMark + "\n" + tidy(decisions)
}

// statements says who reads a line by its first word.
func statements() map[string]func(*Scenario, *args) *fault.Error {
	return map[string]func(*Scenario, *args) *fault.Error{
		"policy":   (*Scenario).policyLine,
		"seed":     (*Scenario).seedLine,
		"until":    (*Scenario).untilLine,
		"detect":   (*Scenario).detectLine,
		"still":    (*Scenario).stillLine,
		"energy":   (*Scenario).energyLine,
		"node":     (*Scenario).nodeLine,
		"cloud":    (*Scenario).cloudLine,
		"job":      (*Scenario).jobLine,
		"workload": (*Scenario).workloadLine,
		"trace":    (*Scenario).traceLine,
		"at":       (*Scenario).atLine,
		"random":   (*Scenario).randomLine,
		"offer":    (*Scenario).offerLine,
		"quota":    (*Scenario).quotaLine,
		"data":     (*Scenario).dataLine,
		"roads":    (*Scenario).roadsLine,
		"strict":   (*Scenario).strictLine,
		"forecast": (*Scenario).forecastLine,
	}
}

// read reads all lines and collects the mistakes, one a line.
func (s *Scenario) read() fault.List {
	var wrong fault.List
	readers := statements()
	lines, bad := split(s.file, s.text)
	wrong = append(wrong, bad...)
	for _, a := range lines {
		first := a.next()
		reader, ok := readers[first.text]
		if !ok {
			wrong = append(wrong, a.unknown(first, "line", keysOf(readers)))
		} else if err := reader(s, a); err != nil {
			wrong = append(wrong, err)
		}

		if len(wrong) >= maxWrong {
			break
		}
	}

	return wrong
}

// check finds what is wrong with the whole.
func (s *Scenario) check() fault.List {
	var wrong fault.List
	add := func(code, remedy, format string, args ...any) {
		wrong = append(
			wrong,
			fault.New(fault.Invalid, code, "%s: %s", s.file, fmt.Sprintf(format, args...)).WithRemedy("%s", remedy),
		)
	}

	joins := slices.ContainsFunc(s.changes, func(c sim.Change) bool { return c.Kind == sim.NodeJoins })
	if len(s.nodes) == 0 && !joins && len(s.hybrid.cloud.Offers) == 0 {
		add("no_node", "add a line such as: node a 8x V100:16GB", "the scenario has no node")
	}

	if len(s.jobs) == 0 && len(s.loads) == 0 {
		add("no_job", "add a line such as: job first gpus 2 lasts 1h", "the scenario has no job")
	}

	for _, c := range s.changes {
		if !s.nodeNames[c.ID] {
			add("unknown_node", "use the name of a node of the scenario", "no node is called %s (%s at %s)", c.ID, c.Kind, c.At)
		}
	}

	for _, c := range s.chances {
		for _, n := range c.nodes {
			if !s.nodeNames[n] {
				add("unknown_node", "use the name of a node of the scenario", "no node is called %s (random %s)", n, c.down)
			}
		}
	}

	if s.Still >= 0 && s.Until > 0 && s.Still+rounds > s.Until {
		add("bad_value", "choose a later until", "the scenario ends before the check for further decisions at %s", s.Still)
	}

	return wrong
}

func (s *Scenario) policyLine(a *args) *fault.Error {
	name, err := a.must("the name of a policy", "policy fifo")
	if err != nil {
		return err
	}

	parts := []string{name.text}
	for a.hasNext() {
		w := a.next()
		if !strings.Contains(w.text, "=") {
			return a.bad(w, "invalid policy parameter %q", w.text).WithRemedy("use KEY=VALUE, e.g. margin=0.2")
		}

		parts = append(parts, w.text)
	}

	s.Policy = strings.Join(parts, ":")

	return nil
}

func (s *Scenario) seedLine(a *args) *fault.Error { return a.only(into(&s.Seed, parseSeed)) }

func (s *Scenario) untilLine(a *args) *fault.Error { return a.only(into(&s.Until, parseDuration)) }

func (s *Scenario) detectLine(a *args) *fault.Error { return a.only(into(&s.detect, parseDuration)) }

func (s *Scenario) stillLine(a *args) *fault.Error { return a.only(into(&s.Still, parseDuration)) }

func (s *Scenario) energyLine(a *args) *fault.Error {
	w, err := a.must("the price of a kWh", "energy 0.30 pue 1.4")
	if err != nil {
		return err
	}
	if err := into(&s.energy, parsePrice[money.PerKWh])(a, w); err != nil {
		return err
	}

	return a.keys(map[string]reader{"pue": value(into(&s.pue, parseAmount))})
}
