package fleet

import (
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Offer is a kind of on-demand node that could be provisioned.
type Offer struct {
	Name             string       `json:"name"` // PROVIDER/TYPE/REGION, with /ZONE and /spot where they apply
	Provider         string       `json:"provider"`
	Type             string       `json:"type"`
	Region           string       `json:"region,omitempty"`
	Zone             string       `json:"zone,omitempty"`
	Spot             bool         `json:"spot,omitempty"` // cheaper, but the provider may reclaim it
	GPU              string       `json:"gpu,omitempty"`
	GPUs             int          `json:"gpus,omitempty"`
	GPUMemory        job.Bytes    `json:"gpu_memory,omitempty"` // of one GPU
	TFLOPS           float64      `json:"tflops,omitempty"`     // peak of one GPU; 0 to look it up by name
	CPUs             job.CPUs     `json:"cpus"`
	Memory           job.Bytes    `json:"memory"`
	Hourly           job.Money    `json:"hourly"`                      // price of an hour
	Boot             job.Duration `json:"boot,omitempty"`              // from the request until its agent joins
	BillingIncrement job.Duration `json:"billing_increment,omitempty"` // billed in whole increments of this length; 0 for by the second
	MinBilling       job.Duration `json:"min_billing,omitempty"`       // billed for at least this long
	MaxNodes         int          `json:"max_nodes,omitempty"`         // at once; 0 for no limit
	LossRate         float64      `json:"loss_rate,omitempty"`         // how often a spot node is reclaimed, per hour; 0 if unknown
	Fake             bool         `json:"fake,omitempty"`              // its GPUs are declared, not real
	Shared           string       `json:"shared,omitempty"`            // names of the shared file systems that its nodes see, separated by commas
	Shares           string       `json:"shares,omitempty"`            // version of the library with which its nodes divide their GPUs among jobs; "" if they do not
}

// NameOf returns the name of an offer, made from its provider, type, region, zone and spot.
func (o *Offer) NameOf() string {
	name := o.Provider + "/" + o.Type
	if o.Region != "" {
		name += "/" + o.Region
	}

	if o.Zone != "" {
		name += "/" + o.Zone
	}

	if o.Spot {
		name += "/spot"
	}

	return name
}

// Node returns a node as this offer would provision it, for matching and pricing.
func (o *Offer) Node() *Node {
	n := &Node{ID: id.Node(o.Name), Class: OnDemand, State: Ready}
	n.Inventory = Inventory{CPUs: o.CPUs, Memory: o.Memory, Shares: o.Shares}
	for i := range o.GPUs {
		n.Inventory.GPUs = append(
			n.Inventory.GPUs,
			GPU{Index: i, Model: o.GPU, Memory: o.GPUMemory, Peak: o.TFLOPS, Fake: o.Fake},
		)
	}

	if o.Shared != "" {
		for name := range strings.SplitSeq(o.Shared, ",") {
			n.Inventory.Shared = append(n.Inventory.Shared, Shared{Name: name, OK: true})
		}
	}

	return n
}

// Speed returns the TFLOPS of one of its GPUs, 0 if unknown.
func (o *Offer) Speed() float64 {
	g := GPU{Model: o.GPU, Peak: o.TFLOPS}
	speed, _ := g.TFLOPS()
	return speed
}

// PerHour returns the price of a node of this offer.
func (o *Offer) PerHour() money.PerHour { return o.Hourly.PerHour() }

// PerGPU returns the price of one of its GPUs, or that of a node without GPUs.
func (o *Offer) PerGPU() money.PerGPUHour { return o.PerHour().PerGPU(o.GPUs) }

// Cost returns what a node of this offer costs for a duration.
func (o *Offer) Cost(d job.Duration) money.Amount {
	return o.PerHour().For(time.Duration(o.BilledDuration(d)))
}

// BilledDuration returns the duration that is billed for a node that is kept for d.
func (o *Offer) BilledDuration(d job.Duration) job.Duration {
	d = max(d, o.MinBilling, 0)
	if o.BillingIncrement > 0 && d%o.BillingIncrement != 0 {
		d += o.BillingIncrement - d%o.BillingIncrement
	}

	return d
}
