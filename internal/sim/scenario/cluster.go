package scenario

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim"
)

// What a node has that does not say otherwise.
const (
	usualCPUs   = 64_000 // thousandths
	usualMemory = job.Bytes(512 << 30)
	usualGPU    = job.Bytes(16 << 30)

	simulatedShares = "simulated" // version of the library with which nodes divide their GPUs
)

// group is what was written in one line: nodes that are alike.
type group struct {
	nodes      []id.Node
	class      fleet.Class
	kind       string // of GPU, with its memory; "" without
	gpus       int
	cpus       job.CPUs
	memory     job.Bytes
	joins      time.Duration
	joinsLater bool // they join later
	price      fleet.NodePrice
	singleUser bool          // run jobs of one user at a time
	pool       string        // that they have joined; "" if none
	topology   string        // where they are; "" if unknown
	billed     time.Duration // provisioned for whole stretches of this length
}

// pricing is one line of the tariff with the line of the text that made it.
type pricing struct {
	fleet.NodePrice
	at word
}

// nodeLine reads nodes that are there as a rule: the team's own, or reserved ones.
func (s *Scenario) nodeLine(a *args) *fault.Error {
	g := group{class: fleet.Local}
	return s.groupLine(a, &g, map[string]reader{"off": flag(&g.price.Off)})
}

// cloudLine reads on-demand nodes: they are paid for while they are used, need
// time to boot, and may be lost.
func (s *Scenario) cloudLine(a *args) *fault.Error {
	g := group{class: fleet.OnDemand}
	g.price.Off = true
	lost := chance{down: sim.NodeReclaimed, up: sim.NodeUncordoned, lasts: 10 * time.Minute}
	at := a.last

	err := s.groupLine(a, &g, map[string]reader{
		"billed":     value(into(&g.billed, parseLasting)),
		"lost_every": value(into(&lost.every, parseLasting)),
		"back_after": value(into(&lost.lasts, parseLasting)),
	})

	if err != nil || lost.every == 0 {
		return err
	}

	lost.nodes, lost.at = g.nodes, at
	s.chances = append(s.chances, lost)

	return nil
}

// groupLine reads what lines of nodes have in common: names, class, GPUs, and
// then keys.
func (s *Scenario) groupLine(a *args, g *group, more map[string]reader) *fault.Error {
	start := a.last
	w, err := a.must("the name of a node", start.text+" a 8x V100:16GB")
	if err != nil {
		return err
	}
	if err := into(&g.nodes, parseNames)(a, w); err != nil {
		return err
	}

	g.cpus, g.memory = usualCPUs, usualMemory
	table := map[string]reader{
		"single_user": flag(&g.singleUser),
		"pool":        value(into(&g.pool, parseNode)),
		"topology": value(into(&g.topology, func(s string) (string, error) {
			return s, fleet.CheckTopology(s)
		})),
		"cpus":   value(into(&g.cpus, job.ParseCPUs)),
		"memory": value(into(&g.memory, job.ParseBytes)),
		"hourly": value(into(&g.price.Hourly, list(parsePrice[money.PerHour]))),
		"watts":  value(into(&g.price.Watts, list(parseAmount))),
		"boot": value(func(a *args, w word) *fault.Error {
			return into((*time.Duration)(&g.price.Boot), parseLasting)(a, w)
		}),
		"joins": value(func(a *args, w word) *fault.Error {
			g.joinsLater = true
			return into(&g.joins, parseDuration)(a, w)
		}),
	}

	for _, c := range fleet.Classes() {
		table[string(c)] = func(*args, word) *fault.Error {
			g.class = c
			return nil
		}
	}

	maps.Copy(table, more)

	if err := g.devices(a); err != nil {
		return err
	}
	if err := a.keys(table); err != nil {
		return err
	}
	if g.price.Boot > 0 && !g.price.Off {
		return a.bad(start, "boot applies only to nodes that are switched off when idle").WithRemedy("add off or remove boot")
	}

	return s.addGroup(a, start, g)
}

var counted = regexp.MustCompile(`^(\d+)x(.*)$`)

// devices reads GPUs as in 8x A100:80GB, in one word or in two.
func (g *group) devices(a *args) *fault.Error {
	// A class may stand in front of them.
	at := 0
	for at < len(a.words) && !counted.MatchString(a.words[at].text) {
		at++
		if at > 1 {
			return nil // without GPUs
		}
	}

	if at == len(a.words) {
		return nil
	}

	w := a.words[at]
	m := counted.FindStringSubmatch(w.text)
	kind, used := m[2], 1
	if kind == "" {
		if at+1 == len(a.words) {
			return a.bad(w, "the GPU model is missing").WithRemedy("for example: 8x V100:16GB")
		}

		kind, used = a.words[at+1].text, 2
	}

	n, err := parseCount(m[1])
	if err != nil || n < 1 || n > fleet.MaxGPUs {
		return a.bad(w, "a node must have 1 to %d GPUs, got %s", fleet.MaxGPUs, m[1])
	}

	var k job.GPUKind
	if err := k.UnmarshalText([]byte(kind)); err != nil || k.Model == "" {
		return a.bad(w, "invalid GPU type %q", kind).WithRemedy("give a model and its memory, e.g. V100:16GB")
	}

	if k.Memory == 0 {
		k.Memory = usualGPU
	}

	g.gpus, g.kind = n, k.String()
	a.words = append(append([]word{}, a.words[:at]...), a.words[at+used:]...)

	return nil
}

// addGroup makes the nodes of a line and its line of the tariff.
func (s *Scenario) addGroup(a *args, at word, g *group) *fault.Error {
	if len(s.nodes)+len(g.nodes) > maxNodes {
		return a.bad(at, "a scenario may have at most %d nodes", maxNodes)
	}

	for _, n := range g.nodes {
		if s.nodeNames[n] {
			return a.bad(at, "node %s is defined twice", n)
		}

		s.nodeNames[n] = true

		node := g.node(n)
		if g.joinsLater {
			s.changes = append(s.changes, sim.Change{At: g.joins, Kind: sim.NodeJoins, ID: n, Node: &node})
		} else {
			s.nodes = append(s.nodes, node)
		}
	}

	g.price.Class, g.price.GPU = g.class, g.kind
	for _, p := range s.prices {
		if p.Class == g.class && p.GPU == g.kind {
			if !reflect.DeepEqual(p.NodePrice, g.price) {
				return a.bad(at, "the price differs from line %d, which has nodes of the same class and GPU type", p.at.line).
					WithRemedy("give both lines the same price or different GPUs")
			}

			s.groups = append(s.groups, *g)

			return nil
		}
	}

	s.prices = append(s.prices, pricing{g.price, at})
	s.groups = append(s.groups, *g)

	return nil
}

// node makes one node of the group.
func (g *group) node(name id.Node) fleet.Node {
	n := fleet.Node{ID: name, Class: g.class, Pool: g.pool, Inventory: fleet.Inventory{
		CPUs: g.cpus, Memory: g.memory, Shares: simulatedShares, SingleUser: g.singleUser, Topology: g.topology,
	}}
	var kind job.GPUKind
	if kind.UnmarshalText([]byte(g.kind)) != nil {
		kind.Model = g.kind
	}

	for i := range g.gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, gpuspec.Describe(fleet.GPU{
			Index: i, UUID: fmt.Sprintf("%s-%d", name, i), Model: kind.Model, Memory: kind.Memory,
		}))
	}

	return n
}

// tariff returns what nodes cost, nil if no line has a price.
func (s *Scenario) tariff() *fleet.Tariff {
	t := &fleet.Tariff{Energy: s.energy, PUE: s.pue}
	priced := false

	var bare []fleet.NodePrice
	for _, p := range s.prices {
		priced = priced || len(p.Hourly) > 0 || len(p.Watts) > 0 || p.Boot > 0

		if p.GPU == "" { // matches every node of the class, so it comes last
			bare = append(bare, p.NodePrice)
		} else {
			t.Nodes = append(t.Nodes, p.NodePrice)
		}
	}

	t.Nodes = append(t.Nodes, bare...)

	if !priced {
		return nil
	}

	return t
}

var clusterForm = regexp.MustCompile(`^(\d+)x(.+)x(\d+)$`)

// Cluster makes nodes of a short text: 2xA100:80GBx8 is two nodes with eight such
// GPUs each, and several such parts are joined by commas. Each part's nodes are
// named after the prefix, the kind and a number.
func Cluster(text, prefix string, class fleet.Class) ([]fleet.Node, error) {
	bad := fault.New(fault.Invalid, "bad_cluster", "invalid cluster %q", text).
		WithRemedy("use NODESxGPUxGPUS_PER_NODE, e.g. 4xA100:80GBx8; separate several with commas")
	var nodes []fleet.Node
	made := map[string]int{}

	for part := range strings.SplitSeq(text, ",") {
		m := clusterForm.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return nil, bad
		}

		count, err1 := parseCount(m[1])
		gpus, err2 := parseCount(m[3])
		var kind job.GPUKind
		err3 := kind.UnmarshalText([]byte(m[2]))
		if err1 != nil || err2 != nil || err3 != nil || count < 1 || len(nodes)+count > maxNodes || gpus < 1 ||
			gpus > fleet.MaxGPUs {
			return nil, bad
		}

		if kind.Memory == 0 {
			kind.Memory = usualGPU
		}

		g := group{class: class, kind: kind.String(), gpus: gpus, cpus: usualCPUs, memory: usualMemory}

		base := prefix + strings.ToLower(strings.Map(nameable, kind.Model))
		for range count {
			made[base]++
			name := fmt.Sprintf("%s-%d", base, made[base])
			if !id.Name(name) {
				return nil, bad
			}

			nodes = append(nodes, g.node(id.Node(name)))
		}
	}

	return nodes, nil
}

// nameable keeps what may be in a name.
func nameable(c rune) rune {
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
		return c
	}

	return '-'
}
