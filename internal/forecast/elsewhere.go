package forecast

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"trainyard/internal/gpuspec"
	"trainyard/internal/job"
)

// maxExtrapolation is how many times the largest known number of GPUs a job is assumed to scale to. Beyond that the
// cost of
// communication is unknown.
const maxExtrapolation = 2

// sample is a measured or declared speed: seconds per unit on a number of GPUs.
type sample struct {
	gpu     string
	gpus    int
	perUnit float64
}

// speeds are samples in one unit, from one source.
type speeds struct {
	source  string // "measured" or "declared"
	samples []sample
}

// measuredSpeeds returns the speeds that the job has had, the newest of each allocation.
func measuredSpeeds(in *Input, v *view) speeds {
	s := speeds{source: "measured"}
	for i := range in.Runs {
		if p := v.paces[i]; p.perUnit > 0 {
			s.add(sample{in.Runs[i].GPU, in.Runs[i].GPUs, p.perUnit})
		}
	}

	return s
}

// declaredSpeeds returns the speeds that the job file or the program tells, or that were learned
// from them. Those on several nodes stand in where there are no others.
func declaredSpeeds(speed *job.Speed) speeds {
	s := speeds{source: "declared"}
	if speed == nil {
		return s
	}

	for _, spread := range []bool{true, false} {
		for _, r := range speed.Rates {
			if r.PerSecond > 0 && r.Share == 0 && r.GPUs > 0 && r.Spread == spread {
				s.add(sample{r.GPU, r.GPUs, 1 / r.PerSecond})
			}
		}
	}

	return s
}

func (s *speeds) add(one sample) {
	s.samples = slices.DeleteFunc(
		s.samples,
		func(o sample) bool { return o.gpus == one.gpus && strings.EqualFold(o.gpu, one.gpu) },
	)

	s.samples = append(s.samples, one)
}

// of returns the samples of a kind of GPU by their count. A sample without a kind is of any.
func (s *speeds) of(model string) []sample {
	var found []sample
	for _, o := range s.samples {
		if sameKind(o.gpu, model) {
			found = append(found, o)
		}
	}

	slices.SortFunc(found, func(a, b sample) int { return cmp.Compare(a.gpus, b.gpus) })

	return found
}

// sameKind reports whether a kind, as job files write it, is that of a model.
func sameKind(kind, model string) bool {
	if kind == "" || strings.EqualFold(kind, model) {
		return true
	}

	name, _, _ := strings.Cut(kind, ":")

	return model != "" && job.GPUKind{Model: name}.Matches(model, 0)
}

// secondsPerUnit returns the seconds a unit takes on so many GPUs by samples of one kind: as
// measured where that count was; else by t(n) = a + b/n, a part that GPUs do not share and one that
// they do, through those that were; and in no case less than on twice the greatest count.
func secondsPerUnit(samples []sample, n int) float64 {
	n = max(n, 1)
	n = min(n, maxExtrapolation*max(samples[len(samples)-1].gpus, 1))

	var w, wu, wuu, wt, wut float64
	for _, s := range samples {
		if s.gpus == n {
			return s.perUnit
		}

		// Weighted so that relative errors count.
		weight, u := 1/(s.perUnit*s.perUnit), 1/float64(max(s.gpus, 1))
		w, wu, wuu = w+weight, wu+weight*u, wuu+weight*u*u
		wt, wut = wt+weight*s.perUnit, wut+weight*u*s.perUnit
	}

	det := w*wuu - wu*wu

	a, b := 0.0, wut/wuu // GPUs share everything: all that one count can tell
	if len(samples) > 1 && det > 1e-12*w*wuu {
		a, b = (wuu*wt-wu*wut)/det, (w*wut-wu*wt)/det
		switch {
		case a < 0:
			a, b = 0, wut/wuu
		case b < 0:
			a, b = wt/w, 0
		}
	}

	return a + b/float64(n)
}

// location is an allocation that speeds are compared between.
type location struct {
	gpu    string
	gpus   int
	tflops float64
}

func (s *Stretch) location() location { return location{s.GPU, s.GPUs, s.TFLOPS} }
func (p *Place) location() location   { return location{p.GPU, p.GPUs, p.TFLOPS} }

// peak returns the TFLOPS of one GPU: as given, or from its data sheet; 0 if unknown.
func (w location) peak() float64 {
	if w.tflops > 0 {
		return w.tflops
	}
	if spec, ok := gpuspec.Find(w.gpu, 0); ok {
		return spec.Peak()
	}

	return 0
}

// speedup returns how many times as fast a job is in one place as in another, with the
// basis of that, and false if nothing tells. Best is a source that knows that very
// count or several others there; next, one count of another kind of GPU; then TFLOPS.
func speedup(to, from location, sources ...speeds) (ratio float64, why string, ok bool) {
	for i := range sources {
		s := &sources[i]
		here, there := s.of(from.gpu), s.of(to.gpu)
		if len(here) > 0 && (len(there) > 1 || len(there) == 1 && there[0].gpus == to.gpus) {
			why = fmt.Sprintf("based on speeds %s on %s", s.source, list(there))
			return secondsPerUnit(here, from.gpus) / secondsPerUnit(there, to.gpus), why + limitNote(there, to.gpus), true
		}
	}

	for i := range sources {
		s := &sources[i]
		here, there := s.of(from.gpu), s.of(to.gpu)
		if len(here) > 0 && len(there) == 1 && !sameKind(there[0].gpu, from.gpu) {
			why = fmt.Sprintf("based on the speed %s on %s, assumed to scale with the number of GPUs", s.source, list(there))
			return secondsPerUnit(here, from.gpus) / secondsPerUnit(there, to.gpus), why + limitNote(there, to.gpus), true
		}
	}

	a, b := from.peak(), to.peak()
	if strings.EqualFold(from.gpu, to.gpu) {
		a, b = 1, 1 // whatever it is, it is the same
	}

	if a == 0 || b == 0 || from.gpus == 0 || to.gpus == 0 {
		return 0, "", false
	}

	for i := range sources {
		s := &sources[i]
		if here := s.of(from.gpu); len(here) > 1 {
			why = fmt.Sprintf("based on speeds %s on %s, scaled by TFLOPS", s.source, list(here))
			return secondsPerUnit(here, from.gpus) / secondsPerUnit(here, to.gpus) * b / a, why + limitNote(here, to.gpus), true
		}
	}

	seen := []sample{{from.gpu, from.gpus, 1}}

	return b / a / secondsPerUnit(seen, to.gpus), "based on TFLOPS only" + limitNote(seen, to.gpus), true
}

// limitNote says that a count is beyond what was seen.
func limitNote(samples []sample, n int) string {
	if limit := maxExtrapolation * max(samples[len(samples)-1].gpus, 1); n > limit {
		return fmt.Sprintf("; no faster than on %d, twice the largest known count", limit)
	}

	return ""
}

// list names the allocations of samples: "1, 2 and 4× A100".
func list(samples []sample) string {
	var counts []string
	for _, s := range samples {
		counts = append(counts, fmt.Sprint(s.gpus))
	}

	text := strings.Join(counts, ", ")
	if n := len(counts); n > 1 {
		text = strings.Join(counts[:n-1], ", ") + " and " + counts[n-1]
	}

	if model := samples[0].gpu; model != "" {
		return text + "× " + model
	}

	return text + " GPUs"
}

// elsewhere estimates what remains of a job on other GPUs. Whatever has to be set up or
// restored there is part of it.
func elsewhere(in *Input, f *job.Forecast, from location, start float64, sources ...speeds) []job.Elsewhere {
	var all []job.Elsewhere

	for i := range in.Places {
		p := &in.Places[i]
		if p.GPUs == from.gpus && strings.EqualFold(p.GPU, from.gpu) {
			continue
		}

		ratio, why, ok := speedup(p.location(), from, sources...)
		if !ok || ratio <= 0 || math.IsInf(ratio, 0) || math.IsNaN(ratio) {
			continue
		}

		rest := min(f.Remaining.Mid/ratio+start, maxSeconds)
		rent := Rent{Offer: p.Offer}
		cost := rent.cost(p.Hourly, rest)
		all = append(all, job.Elsewhere{GPU: p.GPU, GPUs: p.GPUs, Remaining: rest, Cost: cost, Why: why})
	}

	return all
}
