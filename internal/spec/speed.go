package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
)

const (
	maxRates     = 64    // measured speeds of a job
	maxRateKinds = 8     // kinds of GPU among them: each has a curve of its own
	minWork      = 1e-6  // units; half an epoch is work too
	minRate      = 1e-12 // units per second
)

// speed returns the speed of a spec, made if there is none.
func speed(s *job.Spec) *job.Speed {
	if s.Speed == nil {
		s.Speed = &job.Speed{}
	}

	return s.Speed
}

// rate returns the newest rate of a spec, which is the one that is read or written.
func rate(s *job.Spec) *job.Rate {
	list := &speed(s).Rates
	if len(*list) == 0 {
		*list = append(*list, job.Rate{})
	}

	return &(*list)[len(*list)-1]
}

// speedField says how much work the job is and how fast it does it.
func speedField() field {
	return field{
		name:    "speed",
		also:    []string{"throughput", "performance"},
		example: "{work: 130M, rates: [{gpus: 1, per_second: 900}]}",
		doc: "How much work the job is and how fast it runs on which GPUs, in units of your choice: samples, steps, " +
			"epochs. " +
			"Trainyard shows progress and estimates the run time from it; policies that plan by speed use all of it.",
		fields: []field{
			{
				name:    "work",
				kind:    amountKind("amount of work", minWork, func(s *job.Spec) *float64 { return &speed(s).Work }),
				example: "130M",
				must:    true,
				also:    []string{"units", "total_work"},
				doc:     "Total units of work.",
			},
			{
				name:    "rates",
				list:    &list{most: maxRates, add: addRate, each: eachRate},
				fields:  rateFields(),
				example: "[{gpu: A100, gpus: 2, per_second: 12.5K}]",
				also:    []string{"rate", "curve"},
				doc: "Measured speeds. Between two GPU counts they are interpolated linearly; below the smallest measured " +
					"count the job is assumed not to run, above the largest not to get faster.",
			},
			{
				name:    "start",
				kind:    durationKind(func(s *job.Spec) *job.Duration { return &speed(s).Start }, 0, maxStart),
				example: "45s",
				def:     "0s",
				also: []string{
					"startup",
					"warmup",
					"restore",
				},
				doc: "Time from the start of the program to its first unit of work, including the loading of a checkpoint.",
			},
			{
				name:    "save",
				kind:    durationKind(func(s *job.Spec) *job.Duration { return &speed(s).Save }, 0, maxStart),
				example: "20s",
				def:     "0s",
				doc:     "How long the program takes to write a checkpoint when it is asked to stop.",
			},
		},
	}
}

func rateFields() []field {
	return []field{
		{name: "gpu", kind: rateGPUKind(), example: "A100", also: []string{"gpu_type"},
			doc: "The GPU model on which it was measured, as in resources.gpu; without it, any."},
		{
			name:    "gpus",
			kind:    wholeKind(func(s *job.Spec) *int { return &rate(s).GPUs }, 0, job.MaxCount),
			example: "2",
			def:     "0",
			also:    []string{"num_gpus"},
			doc:     "GPUs of all nodes together.",
		},
		{
			name:    "spread",
			kind:    boolKind(func(s *job.Spec) *bool { return &rate(s).Spread }),
			example: "true",
			def:     "false",
			also: []string{
				"unconsolidated",
			},
			doc: "Whether they were on several nodes. Without such rates the job is assumed to run as fast there as on one.",
		},
		{
			name:    "share",
			kind:    shareKind(func(s *job.Spec) *float64 { return &rate(s).Share }, 0.01, 0.99),
			example: "0.5",
			also:    []string{"gpu_share", "fraction"},
			doc: "Fraction of one GPU; other jobs may use the rest. Policies that share GPUs may then give the job no " +
				"more than this, on nodes that divide their GPUs.",
		},
		{
			name:    "per_second",
			kind:    amountKind("number of units", minRate, func(s *job.Spec) *float64 { return &rate(s).PerSecond }),
			example: "12.5K",
			must:    true,
			also:    []string{"rate", "throughput", "speed"},
			doc:     "Units of work per second.",
		},
	}
}

// addRate makes room for the rate that is read next.
func addRate(s *job.Spec) { speed(s).Rates = append(speed(s).Rates, job.Rate{}) }

// eachRate returns a spec for each rate that has this rate alone.
func eachRate(s *job.Spec) []*job.Spec {
	if s.Speed == nil {
		return nil
	}

	var all []*job.Spec
	for _, r := range s.Speed.Rates {
		all = append(all, &job.Spec{Speed: &job.Speed{Rates: []job.Rate{r}}})
	}

	return all
}

// rateGPUKind reads one GPU model, without a count.
func rateGPUKind() kind {
	return kind{
		words: "a GPU model",
		schema: func() schema {
			return schema{"type": "string", "pattern": `^[A-Za-z][A-Za-z0-9 ._/-]*(:[0-9][0-9A-Za-z.]*)?$`}
		},
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			g, problem, remedy := parseGPU(s)
			switch {
			case problem != "":
				v.bad(problem, remedy)
			case g.memory:
				v.bad("must be a GPU model such as A100 or A100:80GB"+got(s), v.example())
			case g.count != nil:
				v.bad("must be a GPU model without a number of GPUs"+got(s), "write the number in gpus")
			default:
				rate(&v.d.entry.Spec).GPU = g.kind.String()
			}
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return textNode(rate(s).GPU) },
	}
}

// boolKind reads true or false.
func boolKind(at func(*job.Spec) *bool) kind {
	return kind{
		words:  "true or false",
		schema: func() schema { return schema{"type": "boolean"} },
		read: func(v value) {
			s, ok := v.line()
			if !ok {
				return
			}

			if s != "true" && s != "false" {
				v.bad("must be true or false"+got(s), v.example())
				return
			}

			*at(&v.d.entry.Spec) = s == "true"
		},
		write: func(s *job.Spec) (*yaml.Node, error) { return word(strconv.FormatBool(*at(s))), nil },
	}
}

// speed checks the speed of a job by itself, and draws its curves.
func (r *reader) speed(d *draft) {
	n, given := d.at["speed"]
	if !given || n.Kind != yaml.MappingNode {
		return
	}

	if _, ok := d.at["speed.work"]; !ok {
		r.Fail(n, "missing_value", "speed.work", "is required", "write it as in speed: {work: 130M}")
	}

	s := speed(&d.entry.Spec)
	kinds := r.rates(d, s.Rates)
	if len(kinds) > maxRateKinds {
		r.Fail(
			d.at["speed.rates"],
			"too_large",
			"speed.rates",
			fmt.Sprintf("must be for at most %d GPU models, got %d", maxRateKinds, len(kinds)),
			"keep those that the job may run on",
		)

		return
	}

	d.entry.Spec.Speed = job.NewSpeed(s.Work, time.Duration(s.Start), time.Duration(s.Save), s.Rates...)
}

// rates checks each rate beside those before it, and returns the kinds of GPU.
func (r *reader) rates(d *draft, rates []job.Rate) (kinds []string) {
	first := map[job.Rate]*yaml.Node{}

	for i := range rates {
		path := ratePath(i)
		at, good := d.at[path]
		if !good {
			continue // reported when it was read
		}

		if _, ok := d.at[path+".per_second"]; !ok {
			r.Fail(at, "missing_value", path+".per_second", "is required", "write it as in {gpus: 2, per_second: 12.5K}")
		}

		if n, ok := d.at[path+".gpus"]; ok && rates[i].Spread && rates[i].GPUs == 1 {
			r.Fail(n, "conflict", path+".gpus", "must be at least 2 with spread: true, got 1", "write more, or remove spread")
		}

		if n, ok := d.at[path+".share"]; ok && (rates[i].GPUs != 1 || rates[i].Spread) {
			r.Fail(
				n,
				"conflict",
				path+".share",
				"must be given with gpus: 1 and without spread",
				"write gpus: 1, and remove spread",
			)
		}

		// Models are compared without case everywhere; one spelling makes them one curve.
		rates[i].GPU, kinds = spelling(kinds, rates[i].GPU)
		key := rates[i]
		key.PerSecond = 0
		if before, twice := first[key]; twice {
			r.Fail(
				at,
				"duplicate_key",
				path,
				fmt.Sprintf("must be for other GPUs than the rate in line %d", before.Line),
				"remove one of them",
			)
		} else {
			first[key] = at
		}
	}

	return kinds
}

// ratePath is where a rate stands in the file.
func ratePath(i int) string { return fmt.Sprintf("speed.rates[%d]", i) }

// spelling returns the first way in which a kind was written, and the list of all kinds.
func spelling(kinds []string, kind string) (string, []string) {
	for _, k := range kinds {
		if strings.EqualFold(k, kind) {
			return k, kinds
		}
	}

	return kind, append(kinds, kind)
}

// measured checks that the rates are for GPUs that the job could have: what it
// asks for has been read without a mistake.
func (r *reader) measured(d *draft) {
	s := d.entry.Spec.Speed
	if s == nil {
		return
	}

	gpus, nodes := d.entry.Spec.Resources.GPUs, d.entry.Spec.Resources.Nodes
	most := gpus.Max * nodes.Max // 0 if there is no limit

	least := map[string]int{} // GPUs of a kind with which there is a rate
	for _, rate := range s.Rates {
		if had, ok := least[rate.GPU]; rate.Share == 0 && (!ok || rate.GPUs < had) {
			least[rate.GPU] = rate.GPUs
		}
	}

	for i, rate := range s.Rates {
		path := ratePath(i)
		at, given := d.at[path+".gpus"]
		if given {
			path += ".gpus"
		} else {
			at = d.at[path]
		}

		switch {
		case gpus == job.Range{} && (rate.GPUs > 0 || rate.GPU != ""):
			r.Fail(
				at,
				"conflict",
				path,
				"must not name GPUs because the job asks for none",
				"ask for GPUs in resources, or remove gpu and gpus",
			)
		case gpus.Min > 0 && rate.GPUs == 0:
			r.Fail(
				at,
				"conflict",
				path,
				"must be at least 1 because the job asks for "+gpus.String()+" GPUs on each node, got 0",
				"say on how many GPUs it was measured, as in gpus: "+strconv.Itoa(gpus.Min),
			)
		case rate.Share > 0 && (gpus.Min > 1 || nodes.Min > 1):
			r.Fail(
				at,
				"conflict",
				path,
				"must be for whole GPUs because the job asks for more than one",
				"ask for 1 or a range from 1, or remove the rate",
			)
		case most > 0 && rate.GPUs == least[rate.GPU] && rate.GPUs > most:
			r.Fail(
				at,
				"conflict",
				path,
				fmt.Sprintf("must be at most %d, the GPUs that the job can have, got %d", most, rate.GPUs),
				"add a rate for fewer GPUs, or ask for more in resources",
			)
		}
	}
}
