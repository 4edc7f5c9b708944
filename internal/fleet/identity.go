package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trainyard/internal/job"
)

// Certificate is a certificate that a node shows, or was given.
type Certificate struct {
	Fingerprint string
	Key         string    // identifies its key, as Node.Key
	Issued      time.Time // from when on it is valid
}

// Identity is what a node proves itself with, and what of it an admin has accepted.
type Identity struct {
	Certificate string    `json:"certificate,omitempty"` // fingerprint of the newest one that it has shown
	Issued      time.Time `json:"issued,omitzero"`       // of that one: those that are older are not accepted any more
	Overlap     time.Time `json:"overlap,omitzero"`      // until when they are all the same, so that open requests end well
	NextKey     string    `json:"next_key,omitempty"`    // of a renewal that it has not shown yet
	Accepted    *Hardware `json:"accepted,omitempty"`    // what it may declare
	Alarm       string    `json:"alarm,omitempty"`       // why somebody else may use its identity; "" if nothing says so
	Twin        string    `json:"twin,omitempty"`        // why its GPUs may be in use by another node; "" if they are its own
	Reported    *Problem  `json:"reported,omitempty"`    // what its agent says of problems, while there is one of these
}

// Causes of problems that the server finds. The first two are solved by an admin who accepts the node.
const (
	CauseIdentity = "identity_alarm"   // two processes may use the identity of the node
	CauseGrowth   = "inventory_growth" // it declares more hardware than was accepted
	CauseTwin     = "joined_twice"     // its GPUs are those of another node
)

// Problem returns what keeps new jobs off a node with this inventory, nil if nothing does: that an admin has to accept
// it, or that its GPUs are those of another node.
func (i *Identity) Problem(inv *Inventory) *Problem {
	if p := i.Unaccepted(inv); p != nil || i.Twin == "" {
		return p
	}

	return &Problem{Cause: CauseTwin, Reason: i.Twin}
}

// Unaccepted returns what keeps new jobs off a node with this inventory until an admin accepts it, nil if nothing does.
func (i *Identity) Unaccepted(inv *Inventory) *Problem {
	const remedy = "; check the machine and accept it (trainyard nodes accept) or remove it " +
		"(trainyard nodes remove --force)"

	if i.Alarm != "" {
		return &Problem{Cause: CauseIdentity, Reason: i.Alarm + remedy}
	}
	if i.Accepted == nil {
		return nil
	}

	if growth := i.Accepted.Growth(inv); growth != "" {
		return &Problem{Cause: CauseGrowth, Reason: "inventory changed: " + growth + remedy}
	}

	return nil
}

// Hardware is what jobs are placed by: a node that declared more of it than it has would get jobs, with all that
// belongs to them, that it should not have.
type Hardware struct {
	CPUs   job.CPUs            `json:"cpus"`
	Memory job.Bytes           `json:"memory"`
	GPUs   map[string]GPUCount `json:"gpus,omitempty"` // by model
	Labels []string            `json:"labels,omitempty"`
}

// GPUCount is how many GPUs of a model there are.
type GPUCount struct {
	Count  int       `json:"count"`
	Memory job.Bytes `json:"memory"` // of the one that has most
}

// Hardware returns what the inventory declares. Measured speeds are not part of it: they are found out again and again.
func (inv *Inventory) Hardware() Hardware { return inv.hardware(func(*GPU) bool { return true }) }

func (inv *Inventory) hardware(counts func(*GPU) bool) Hardware {
	h := Hardware{CPUs: inv.CPUs, Memory: inv.Memory, Labels: inv.Labels}

	for i := range inv.GPUs {
		g := &inv.GPUs[i]
		if !counts(g) {
			continue
		}

		if h.GPUs == nil {
			h.GPUs = map[string]GPUCount{}
		}

		all := h.GPUs[g.Model]
		h.GPUs[g.Model] = GPUCount{Count: all.Count + 1, Memory: max(all.Memory, g.Memory)}
	}

	return h
}

// memoryTolerance is by how much memory may grow: kernels and drivers keep more or less of it for themselves.
const memoryTolerance = 1.05

func grows(was, is job.Bytes) bool { return float64(is) > float64(was)*memoryTolerance }

// Growth says what a node declares more than was accepted, "" if nothing is. Broken GPUs do not count: they get no
// jobs, and may say nothing of what they are. That they are back in service is no growth.
func (h *Hardware) Growth(inv *Inventory) string {
	found := inv.hardware(func(g *GPU) bool { return g.Error == "" })
	var parts []string

	for _, model := range slices.Sorted(maps.Keys(found.GPUs)) {
		was, is := h.GPUs[model], found.GPUs[model]

		switch {
		case is.Count > was.Count:
			parts = append(parts, fmt.Sprintf("%d -> %d GPUs %s %s", was.Count, is.Count, model, is.Memory))
		case grows(was.Memory, is.Memory):
			parts = append(parts, fmt.Sprintf("GPUs %s with %s -> %s", model, was.Memory, is.Memory))
		}
	}

	if found.CPUs > h.CPUs {
		parts = append(parts, fmt.Sprintf("%s -> %s CPUs", h.CPUs, found.CPUs))
	}

	if grows(h.Memory, found.Memory) {
		parts = append(parts, fmt.Sprintf("%s -> %s memory", h.Memory, found.Memory))
	}

	for _, l := range found.Labels {
		if !slices.Contains(h.Labels, l) {
			parts = append(parts, "label "+l)
		}
	}

	return strings.Join(parts, ", ")
}

// String writes the hardware in a line, for the audit record.
func (h *Hardware) String() string {
	text := fmt.Sprintf("%s CPUs, %s memory", h.CPUs, h.Memory)
	for _, model := range slices.Sorted(maps.Keys(h.GPUs)) {
		text += fmt.Sprintf(", %d GPUs %s %s", h.GPUs[model].Count, model, h.GPUs[model].Memory)
	}

	if len(h.Labels) > 0 {
		text += ", labels " + strings.Join(h.Labels, " ")
	}

	return text
}
