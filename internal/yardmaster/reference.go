package yardmaster

import (
	"cmp"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/provision"
)

// references remembers which GPU the expected run times of jobs are for, as long as the nodes stay the same.
type references struct {
	byNeed map[fleet.Need]job.Reference
	nodes  int // nodes.Changes when byNeed was computed
}

// maxReferences bounds what is remembered.
const maxReferences = 4096

// recordReference records with a job which GPU its expected run time is for, unless that is recorded.
func (y *Yard) recordReference(r *jobRecord) {
	if r.Reference != (job.Reference{}) || !r.Spec.Resources.UsesGPUs() {
		return
	}

	r.Reference = y.referenceFor(r.Spec)
	r.outlook.Reference = r.Reference
}

// recordFirstGPU records the GPU of a job's first run as the one that its expected run time is for, if none
// was known when it was submitted.
func (y *Yard) recordFirstGPU(r *jobRecord, first *place.Allocation) {
	n := y.nodes.Of(first.Node)
	if r.Reference != (job.Reference{}) || n == nil {
		return
	}

	if gpu := place.FirstGPU(n, first.GPUs); gpu != nil {
		r.Reference = referenceTo(gpu)
		r.outlook.Reference = r.Reference
	}
}

// referenceFor returns the GPU that a job's expected run time is for: the slowest of the models that it asks
// for; if it asks for none, the most common one of the yard's own nodes that could run it, or else that of
// the cheapest such offer. Where the job may run is not considered: that does not change how long it is.
func (y *Yard) referenceFor(s *job.Spec) job.Reference {
	need := fleet.NeedOf(s, job.Floor{}, nil).Whole()
	need.Place = job.PlaceAny

	if y.references.nodes != y.nodes.Changes || len(y.references.byNeed) >= maxReferences {
		y.references = references{nodes: y.nodes.Changes}
	}

	if known, ok := y.references.byNeed[need]; ok {
		return known
	}

	found := y.findReference(need)
	if y.references.byNeed == nil {
		y.references.byNeed = map[fleet.Need]job.Reference{}
	}

	y.references.byNeed[need] = found

	return found
}

func (y *Yard) findReference(need fleet.Need) job.Reference {
	if need.Kinds == "" {
		return y.commonGPU(need)
	}

	var slowest job.Reference

	for kind := range strings.SplitSeq(need.Kinds, "|") {
		one := need
		one.Kinds = kind

		found := y.commonGPU(one)
		if found == (job.Reference{}) {
			found = tableGPU(kind)
		}

		switch {
		case slowest == job.Reference{}, slowest.TFLOPS == 0 && found.TFLOPS > 0,
			found.TFLOPS > 0 && found.TFLOPS < slowest.TFLOPS:
			slowest = found
		}
	}

	return slowest
}

// commonGPU returns the most common GPU of the yard's own nodes that meet a need, or else that of the
// cheapest offer that does. Of two equally common ones it is the faster: a few weak nodes more are no reason
// to expect less.
func (y *Yard) commonGPU(need fleet.Need) job.Reference {
	match := fleet.NewMatcher(need)
	count := map[string]int{}
	speeds := map[string]job.Reference{}

	rooms := y.nodes.Rooms.SharedRooms()
	for i := range rooms {
		room := &rooms[i]
		if room.Node.Class == fleet.OnDemand || !match.Eligible(room) {
			continue
		}

		for _, index := range fleet.Indices(match.MatchingGPUs(room)) {
			gpu := room.Node.Inventory.GPU(index)
			if gpu == nil {
				continue
			}

			count[gpu.Model]++
			if _, seen := speeds[gpu.Model]; !seen {
				speeds[gpu.Model] = referenceTo(gpu)
			}
		}
	}

	var best job.Reference

	for model, c := range count {
		r := speeds[model]
		if best == (job.Reference{}) ||
			cmp.Or(cmp.Compare(c, count[best.GPU]), cmp.Compare(r.TFLOPS, best.TFLOPS), cmp.Compare(r.GPU, best.GPU)) > 0 {
			best = r
		}
	}

	if best != (job.Reference{}) {
		return best
	}

	return y.cheapestGPU(need)
}

// cheapestGPU returns the GPU of the cheapest offer that meets a need.
func (y *Yard) cheapestGPU(need fleet.Need) job.Reference {
	var cheapest *fleet.Offer
	for _, o := range provision.Options(y.cfg.Offers, need, provision.Query{Now: y.now, Objective: job.ObjectiveCost}) {
		if o.Offer.GPU != "" && (cheapest == nil || o.Offer.Hourly < cheapest.Hourly) {
			cheapest = o.Offer
		}
	}

	if cheapest == nil {
		return job.Reference{}
	}

	return job.Reference{GPU: cheapest.GPU, TFLOPS: cheapest.Speed()}
}

// tableGPU returns a kind of GPU as its data sheet has it, for a kind that neither a node nor an offer has.
func tableGPU(kind string) job.Reference {
	var k job.GPUKind

	// Kinds are validated at submission; one that cannot be parsed here is looked up by its text.
	if k.UnmarshalText([]byte(kind)) != nil {
		k = job.GPUKind{Model: kind}
	}

	gpu := gpuspec.Describe(fleet.GPU{Model: k.Model, Memory: k.Memory})

	return referenceTo(&gpu)
}

func referenceTo(gpu *fleet.GPU) job.Reference {
	tflops, _ := gpu.TFLOPS()
	return job.Reference{GPU: gpu.Model, TFLOPS: tflops}
}
