package utilization

import (
	"maps"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// summarize describes what a run uses or has used, all ranks together.
func summarize(j *job.Job, runs []job.Run, r *runRecord) (api.Utilization, error) {
	if r.Run == "" || len(r.Ranks) == 0 {
		return api.Utilization{}, notMeasured(j.ID)
	}

	out := api.Utilization{
		Job: j.ID, Name: j.Spec.Name, Owner: j.Owner, Run: r.Run, Ended: r.Ended || j.State.Final(),
		Asked: asked(runs, r.Run),
	}

	sum := sums{missing: map[job.Resource]string{}}
	for _, n := range slices.Sorted(maps.Keys(r.Ranks)) {
		rank := r.Ranks[n]
		sum.add(rank)
		out.Ranks = append(out.Ranks, api.RankUse{Rank: n, Node: rank.Node, Use: rank.Last})
		out.Samples = max(out.Samples, rank.Samples)
		out.Elapsed = max(out.Elapsed, rank.elapsed())
	}

	if out.Asked.GPUs == 0 {
		sum.missing[job.ResourceGPU] = "" // there is nothing to measure, which is no defect
	}

	sum.write(&out)
	if first := r.Ranks[0]; first != nil { // the others run beside it
		out.Points = sum.course(first.course())
	}

	for _, e := range r.Earlier {
		out.Earlier = append(out.Earlier, api.RunCourse{Run: e.Run, Points: sum.course(e.Points)})
	}

	for _, resource := range slices.Sorted(maps.Keys(sum.missing)) {
		if why := sum.missing[resource]; why != "" {
			out.Missing = append(out.Missing, api.Missing{Resource: resource, Why: why})
		}
	}

	if out.Ended {
		out.Advice = advise(&out, idleGPUs(r))
	}

	return out, nil
}

// asked is what each node of a run was given.
func asked(runs []job.Run, name id.Run) api.Asked {
	i := slices.IndexFunc(runs, func(r job.Run) bool { return r.ID == name })
	if i < 0 || len(runs[i].Ranks) == 0 {
		return api.Asked{}
	}

	first := &runs[i].Ranks[0]

	return api.Asked{Nodes: len(runs[i].Ranks), GPUs: len(first.GPUs), CPUs: first.CPUs, Memory: first.Memory}
}

func (r *rankRecord) elapsed() float64 { return max(r.Last.At.Sub(r.First).Seconds(), 0) }

// sums adds up ranks.
type sums struct {
	now, mean, peak    amounts
	seconds            float64
	read, written      int64
	received, sent     int64
	rates              rates
	at                 time.Time
	missing            map[job.Resource]string
	samples            int
	meanRanks, running int
}

// amounts are those of api.UseAmounts before it is known which of them were measured.
type amounts struct {
	cpus, memory, busy float64
	gpuMemory          int64
}

func (s *sums) add(r *rankRecord) {
	for _, x := range r.Last.Unmeasured {
		s.missing[x.Resource] = x.Why
	}

	s.samples = max(s.samples, r.Samples)
	s.seconds += r.Last.CPUSeconds
	s.read += r.Last.Read
	s.written += r.Last.Written
	s.received += r.Last.Received
	s.sent += r.Last.Sent
	s.rates.Read += r.Rates.Read
	s.rates.Written += r.Rates.Written
	s.rates.Received += r.Rates.Received
	s.rates.Sent += r.Rates.Sent

	if r.Last.At.After(s.at) {
		s.at = r.Last.At
	}

	s.peak.cpus += r.CPUPeak
	s.peak.memory = max(s.peak.memory, float64(r.Last.MemoryPeak))
	s.peak.busy = max(s.peak.busy, r.BusyPeak)
	s.peak.gpuMemory = max(s.peak.gpuMemory, r.GPUMemory)

	s.now.memory += float64(r.Last.Memory)
	s.now.busy += busy(&r.Last)
	s.running++

	for _, g := range r.Last.GPUs {
		s.now.gpuMemory = max(s.now.gpuMemory, g.Memory)
	}

	if len(r.Points) > 0 || r.Open.Samples > 0 {
		newest := r.Open
		if newest.Samples == 0 {
			newest = r.Points[len(r.Points)-1]
		}

		s.now.cpus += newest.CPUs
	}

	if elapsed := r.elapsed(); elapsed > 0 {
		s.meanRanks++
		s.mean.cpus += (r.Last.CPUSeconds - r.FirstCPU) / elapsed
		s.mean.memory += r.Memory / elapsed
		s.mean.busy += r.Busy / elapsed
	}
}

// write fills in what was measured.
func (s *sums) write(out *api.Utilization) {
	measured := func(r job.Resource) bool {
		_, missing := s.missing[r]
		return !missing
	}

	ranks := float64(max(s.meanRanks, 1))
	out.Mean = s.amounts(&s.mean, measured, ranks)
	out.Peak = s.amounts(&s.peak, measured, 1)

	if s.meanRanks == 0 || s.samples < 2 { // one measurement has no mean
		out.Mean = api.UseAmounts{}
		out.Peak.CPUs = nil
	}

	out.Mean.GPUMemory = nil // only the most of it says anything
	if !out.Ended {
		now := s.amounts(&s.now, measured, float64(max(s.running, 1)))
		if s.samples < 2 {
			now.CPUs = nil
		}

		out.Now = &now
		out.Rates = s.ratesNow(measured)
	}

	if !s.at.IsZero() {
		out.At = &s.at
	}

	if measured(job.ResourceCPU) {
		out.Total.CPUSeconds = &s.seconds
	}

	if measured(job.ResourceDisk) {
		out.Total.Read, out.Total.Written = &s.read, &s.written
	}

	if measured(job.ResourceNetwork) {
		out.Total.Received, out.Total.Sent = &s.received, &s.sent
	}
}

// ratesNow returns the rates of what was measured; nil if it was measured only once.
func (s *sums) ratesNow(measured func(job.Resource) bool) *api.UseRates {
	if s.samples < 2 {
		return nil
	}

	out := &api.UseRates{}
	if measured(job.ResourceDisk) {
		out.Read, out.Written = &s.rates.Read, &s.rates.Written
	}

	if measured(job.ResourceNetwork) {
		out.Received, out.Sent = &s.rates.Received, &s.rates.Sent
	}

	return out
}

// amounts writes figures; how busy GPUs are is a mean over the ranks.
func (s *sums) amounts(a *amounts, measured func(job.Resource) bool, ranks float64) api.UseAmounts {
	out := api.UseAmounts{}
	if measured(job.ResourceCPU) {
		out.CPUs = &a.cpus
	}

	if measured(job.ResourceMemory) {
		memory := int64(a.memory)
		out.Memory = &memory
	}

	if measured(job.ResourceGPU) && s.samples > 0 {
		share := a.busy / ranks
		out.GPUBusy, out.GPUMemory = &share, &a.gpuMemory
	}

	return out
}

// course shows the points of a run. What is not measured now was not measured then.
func (s *sums) course(points []point) []api.UsePoint {
	measured := func(r job.Resource) bool {
		_, missing := s.missing[r]
		return !missing
	}

	out := make([]api.UsePoint, len(points))
	for i := range points {
		p := &points[i]
		a := amounts{cpus: p.CPUs, memory: p.Memory, busy: p.Busy, gpuMemory: int64(p.GPUMemory)}
		out[i] = api.UsePoint{At: p.At, UseAmounts: s.amounts(&a, measured, 1)}

		if p.GPUMemory == 0 {
			out[i].GPUMemory = nil
		}
	}

	return out
}

// idleGPUs counts the GPUs that never did anything while they were looked at.
func idleGPUs(r *runRecord) int {
	idle := 0
	for _, rank := range r.Ranks {
		for _, n := range rank.IdleGPUs {
			if n == rank.Samples {
				idle++
			}
		}
	}

	return idle
}
