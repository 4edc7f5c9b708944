package fleet

import (
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Tariff is what nodes cost: an hourly price and the energy they draw. The first row that
// matches a node applies.
type Tariff struct {
	Energy money.PerKWh `json:"energy" yaml:"energy"`
	PUE    float64      `json:"pue" yaml:"pue"` // power usage effectiveness: watts of the building per watt of the machines; 0 means 1
	Nodes  []NodePrice  `json:"nodes" yaml:"nodes"`
}

// NodePrice is one row of a tariff.
type NodePrice struct {
	GPU              string          `json:"gpu,omitempty" yaml:"gpu"`                             // kind of the node's GPUs; "" for any
	Class            Class           `json:"class,omitempty" yaml:"class"`                         // "" for any
	Watts            []float64       `json:"watts,omitempty" yaml:"watts"`                         // drawn by the node with 0, 1, 2, … GPUs in use
	Hourly           []money.PerHour `json:"hourly,omitempty" yaml:"hourly"`                       // with 0, 1, 2, … GPUs in use
	Off              bool            `json:"off,omitempty" yaml:"off"`                             // an unused node is switched off and costs nothing
	Boot             job.Duration    `json:"boot,omitempty" yaml:"boot"`                           // from off to ready
	BillingIncrement job.Duration    `json:"billing_increment,omitempty" yaml:"billing_increment"` // billed in whole increments of this length; 0 for exact time
}

// Of returns the row for a node, nil if none matches.
func (t *Tariff) Of(n *Node) *NodePrice {
	if t == nil {
		return nil
	}

	for i := range t.Nodes {
		p := &t.Nodes[i]
		if p.Class != "" && p.Class != n.Class {
			continue
		}
		if p.GPU == "" {
			return p
		}
		if len(n.Inventory.GPUs) == 0 {
			continue
		}

		g := &n.Inventory.GPUs[0]

		var kind job.GPUKind
		if kind.UnmarshalText([]byte(p.GPU)) != nil {
			kind = job.GPUKind{Model: p.GPU}
		}

		if kind.Matches(g.Model, g.Memory) {
			return p
		}
	}

	return nil
}

// Rate returns what a node costs per hour with so many GPUs in use, energy included.
func (t *Tariff) Rate(p *NodePrice, used int) money.PerHour {
	if p == nil || used == 0 && p.Off {
		return 0
	}

	return t.HourlyPrice(p, used) + t.Energy.Drawing(t.Power(p, used))
}

// HourlyPrice returns the price of an hour of a node with so many GPUs in use, without energy.
func (t *Tariff) HourlyPrice(p *NodePrice, used int) money.PerHour { return entryFor(p.Hourly, used) }

// Power returns the watts that a node draws with so many GPUs in use, multiplied by the PUE.
func (t *Tariff) Power(p *NodePrice, used int) float64 {
	if p == nil || used == 0 && p.Off {
		return 0
	}

	pue := t.PUE
	if pue == 0 {
		pue = 1
	}

	return entryFor(p.Watts, used) * pue
}

// entryFor returns the entry for a count, the last if there are fewer.
func entryFor[T ~float64](list []T, n int) T {
	if len(list) == 0 {
		return 0
	}

	return list[min(n, len(list)-1)]
}
