package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

const (
	// Quarantine is how long a GPU must be without a fault before it is used again.
	Quarantine = 30 * time.Minute
	// Evidence is shown for noteFor, and at most maxNotes pieces of it.
	noteFor  = 24 * time.Hour
	maxNotes = 4
	// hotReadings is the number of consecutive looks that must find a GPU too hot. Short peaks are
	// left to the protection of the GPU itself.
	hotReadings = 3
	// silentLooks is the number of consecutive looks without an answer after which the driver
	// counts as failed.
	silentLooks = 3
)

// Faults of a GPU's memory, as people see them.
const (
	remapFailed  = "memory row remapping failed"
	remapPending = "memory row remapping pending: GPU reset required"
	retiring     = "memory page retirement pending: GPU reset required"
	unrepairable = "unrepairable memory errors"
)

// health keeps the history of the GPUs: which were seen, what went wrong, and since when they have
// been without a fault. It is stored in a file, because a restart of the agent does not repair a
// GPU.
type health struct {
	path   string
	state  healthState
	saved  string // content of the file
	silent int    // consecutive looks that the driver did not answer
}

type healthState struct {
	Boot string              `json:"boot"`       // boot ID of the machine start that this is about
	Log  uint64              `json:"kernel_log"` // number of the newest kernel message that was read
	GPUs map[string]*history `json:"gpus"`       // by UUID
}

// history is what is known of one GPU.
type history struct {
	GPU    fleet.GPU `json:"gpu"` // as it was last seen
	Bus    string    `json:"bus,omitempty"`
	Listed bool      `json:"listed"` // seen since the machine was started
	// Fault is what keeps the GPU out of use, "" if nothing does. It began at Since and was last
	// observed at Bad.
	Fault string    `json:"fault,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Bad   time.Time `json:"bad,omitzero"`
	// Uncorrected is the newest count of uncorrectable memory errors, -1 if unknown.
	Uncorrected int64     `json:"uncorrected"`
	Hot         int       `json:"hot,omitempty"` // consecutive looks that found it too hot
	Notes       []note    `json:"notes,omitempty"`
	Released    time.Time `json:"released,omitzero"` // newest release by an operator

	holds bool // the fault was present at the newest look
}

type note struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// openHealth reads the stored history. A file that cannot be read is reported and replaced: it must
// not keep the machine out of the yard.
func openHealth(path, boot string) (*health, error) {
	h := &health{path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		err = json.Unmarshal(text, &h.state)
	}

	if err != nil {
		h.state, err = healthState{}, fmt.Errorf("read GPU health history: %w", err)
	}

	for id, p := range h.state.GPUs {
		if p == nil {
			delete(h.state.GPUs, id)
		}
	}

	if h.state.GPUs == nil {
		h.state.GPUs = map[string]*history{}
	}

	if h.state.Boot != boot { // devices may have been removed or moved
		h.state.Boot, h.state.Log = boot, 0
		for _, p := range h.state.GPUs {
			p.Listed = false
		}
	}

	return h, err
}

// save writes the file if the history has changed.
func (h *health) save() error {
	text, err := json.Marshal(h.state)
	if err == nil && string(text) != h.saved {
		err = atomicfile.Write(h.path, text, atomicfile.SingleWriter())
		if err == nil {
			h.saved = string(text)
		}
	}

	if err != nil {
		return fmt.Errorf("write GPU health history: %w", err)
	}

	return nil
}

// knows reports whether any GPU was seen since the machine was started.
func (h *health) knows() bool {
	for _, p := range h.state.GPUs {
		if p.Listed {
			return true
		}
	}

	return false
}

// settle gives every device the index that it had at earlier looks. A driver that has lost a device
// numbers the remaining ones from 0, but runs hold their GPUs by index. A device that no longer
// reports its UUID takes the place of a missing one.
func (h *health) settle(devices []device) []device {
	listed := map[string]bool{}
	for i := range devices {
		d := &devices[i]
		if !d.named() && d.bus != "" {
			for id, p := range h.state.GPUs {
				if p.Listed && p.Bus == d.bus {
					d.gpu.UUID = id
				}
			}
		}

		listed[d.gpu.UUID] = true
	}

	missing := 0

	taken := map[int]bool{}
	for id, p := range h.state.GPUs {
		switch {
		case listed[id] && p.Listed:
			taken[p.GPU.Index] = true
		case strings.HasPrefix(id, unnamed):
			delete(h.state.GPUs, id) // it reports its UUID now, or took the place of a missing device
		case p.Listed:
			taken[p.GPU.Index] = true
			missing++
		}
	}

	devices = slices.DeleteFunc(devices, func(d device) bool {
		stands := !d.named() && missing > 0
		if stands {
			missing--
		}

		return stands
	})

	for i := range devices {
		d := &devices[i]
		if p := h.state.GPUs[d.gpu.UUID]; p != nil && p.Listed {
			d.gpu.Index = p.GPU.Index
		} else {
			for taken[d.gpu.Index] {
				d.gpu.Index++
			}

			taken[d.gpu.Index] = true
		}

		for j := range d.procs {
			d.procs[j].GPU = d.gpu.Index
		}
	}

	return devices
}

// judge updates the history with the devices and errors of one look, and returns all GPUs with
// their faults, by index. settle has been called on the devices.
func (h *health) judge(now time.Time, devices []device, errs []xid) []fleet.GPU {
	h.silent = 0
	listed := map[string]bool{}

	for i := range devices {
		d := &devices[i]
		p := h.state.GPUs[d.gpu.UUID]
		if p == nil {
			p = &history{Uncorrected: -1}
			h.state.GPUs[d.gpu.UUID] = p
		}

		p.observe(now, d)
		listed[d.gpu.UUID] = true
	}

	for id, p := range h.state.GPUs {
		if p.Listed && !listed[id] {
			p.hold(now, "fell off the bus: no longer listed by the driver")
		}
	}

	h.suffer(now, errs)

	return h.verdicts(now)
}

// unanswered updates the history after a look that the driver did not answer.
func (h *health) unanswered(now time.Time) []fleet.GPU {
	h.silent++
	if h.silent >= silentLooks {
		for _, p := range h.state.GPUs {
			if p.Listed {
				p.hold(now, "the driver no longer responds")
			}
		}
	}

	return h.verdicts(now)
}

// suffer adds Xid errors to the history.
func (h *health) suffer(now time.Time, errs []xid) {
	for i := range errs {
		for id, p := range h.state.GPUs {
			if p.Listed && errs[i].uuid == "" && errs[i].bus != "" && p.Bus == errs[i].bus {
				errs[i].uuid = id
			}
		}
	}

	for _, x := range mergeXids(errs) {
		p := h.state.GPUs[x.uuid]
		if p == nil {
			continue // a device that the agent may not use
		}

		if x.fatal() && now.Sub(x.at) < Quarantine {
			p.mark(x.at, x.evidence())
		} else {
			p.note(x.at, x.evidence())
		}
	}
}

// verdicts returns the GPUs seen since the machine was started, by index.
func (h *health) verdicts(now time.Time) []fleet.GPU {
	var all []fleet.GPU
	for _, p := range h.state.GPUs {
		if p.Listed {
			all = append(all, p.verdict(now))
		}
	}

	slices.SortFunc(all, func(a, b fleet.GPU) int { return a.Index - b.Index })

	return all
}

// release puts a GPU back into use because an operator said so. Each release takes effect once,
// however often it is delivered; a fault that persists is found again at the next look.
func (h *health) release(now time.Time, uuid string, at time.Time) (news bool, err error) {
	p := h.state.GPUs[uuid]
	if p == nil {
		return false, fault.New(fault.NotFound, "gpu_unknown", "this node has no GPU %.80q", uuid)
	}
	if !at.After(p.Released) {
		return false, nil
	}

	p.Released = at
	if p.Fault != "" {
		p.Fault, p.Hot, p.holds = "", 0, false
		p.note(now, "released by an operator, "+moment(now))
	}

	return true, h.save()
}

// observe adds the state of a device at one look to its history.
func (p *history) observe(now time.Time, d *device) {
	kept := d.gpu
	kept.Error = ""
	if p.Listed && kept.Memory == 0 { // keep what the device reported before it failed
		kept.Model, kept.Memory = p.GPU.Model, p.GPU.Memory
	}

	p.GPU, p.Listed, p.holds = kept, true, false
	if d.bus != "" {
		p.Bus = d.bus
	}

	if d.uncorrected >= 0 {
		if more := d.uncorrected - p.Uncorrected; p.Uncorrected >= 0 && more > 0 {
			what := "1 uncorrectable memory error"
			if more > 1 {
				what = fmt.Sprintf("%d uncorrectable memory errors", more)
			}

			p.mark(now, what+", "+moment(now))
		}

		p.Uncorrected = d.uncorrected
	}

	p.Hot++
	if d.hot == "" {
		p.Hot = 0
	}

	switch {
	case d.gpu.Error != "":
		p.hold(now, d.gpu.Error)
	case d.recovery != "":
		p.hold(now, "driver requests recovery: "+d.recovery)
	case p.Hot >= hotReadings:
		p.hold(now, "thermal throttling "+d.hot)
	}
}

// mark keeps the GPU out of use because of a single event.
func (p *history) mark(at time.Time, evidence string) {
	if p.Fault == "" {
		p.Since = at
	}

	if !p.holds || p.Fault == "" { // a fault that persists explains more than a past event
		p.Fault = evidence
	}

	if at.After(p.Bad) {
		p.Bad = at
	}

	p.note(at, evidence)
}

// hold keeps the GPU out of use because of a fault that is present now.
func (p *history) hold(now time.Time, what string) {
	p.holds, p.Bad = true, now
	if strings.HasPrefix(p.Fault, what+", since ") {
		return
	}

	p.Since = now
	p.Fault = what + ", since " + moment(now)
	p.note(now, p.Fault)
}

// note adds a piece of evidence, the newest last.
func (p *history) note(at time.Time, text string) {
	if slices.ContainsFunc(p.Notes, func(n note) bool { return n.Text == text }) {
		return
	}

	p.Notes = append(p.Notes, note{at, text})
	slices.SortStableFunc(p.Notes, func(a, b note) int { return a.At.Compare(b.At) })
	p.Notes = p.Notes[max(0, len(p.Notes)-maxNotes):]
}

// verdict returns the GPU with the fault that keeps it out of use and the evidence against it.
func (p *history) verdict(now time.Time) fleet.GPU {
	if p.Fault != "" && !p.holds && now.Sub(p.Bad) >= Quarantine {
		p.Fault = ""
		p.note(now, "no faults, back in use, "+moment(now))
	}

	p.Notes = slices.DeleteFunc(p.Notes, func(n note) bool { return now.Sub(n.At) > noteFor })
	gpu := p.GPU
	switch {
	case p.Fault == "":
	case p.holds:
		gpu.Error = p.Fault
	default:
		gpu.Error = p.Fault + "; in quarantine until " + moment(p.Bad.Add(Quarantine)) + " if no new fault occurs"
	}

	texts := make([]string, len(p.Notes))
	for i, n := range p.Notes {
		texts[i] = n.Text
	}

	gpu.Health = strings.Join(texts, "; ")

	return gpu
}
