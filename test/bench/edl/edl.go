// Package edl simulates the published experiment of Paddle EDL: what elastic
// training jobs do for waiting and for the use of a cluster, alone and beside a
// service whose load falls and rises.
//
// `make bench-edl` runs it. The cluster, the jobs and their times are those of the
// published logs; the policies run in the simulator: no elasticity, EDL's autoscaler
// as published, and ours. It decides nothing and asserts nothing.
package edl

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"text/tabwriter"
	"time"

	"trainyard/internal/place"
	"trainyard/internal/place/elastic"
	"trainyard/internal/place/ordered"
	"trainyard/test/bench/target"
)

// Options are those of every benchmark.
type Options = target.Options

// The cluster: 133 nodes with 2,348 CPUs, of which other pods hold 50. A trainer
// takes 5 CPUs, so that a node holds three, and most of the rest cannot be used.
const (
	nodes     = 133
	perNode   = 3 // trainers
	cpus      = 2348
	otherCPUs = 50.5
	slotCPUs  = 5
)

// A training job: 2 to 60 trainers, and the slots of ten parameter servers and a
// master (41 CPUs).
const (
	leastTrainers = 2
	mostTrainers  = 60
	serverSlots   = 8
)

// Costs that apply to every policy: a pod that is stopped may take as long as
// Kubernetes lets it; the published autoscaler looks as often as it was set to.
const (
	goes = 30 * time.Second
	look = 30 * time.Second
)

// way is one way to run the cluster.
type way struct {
	key     string
	elastic bool // jobs may have any number of trainers; else they take what is there of what they want, and keep it
	policy  func() place.Policy
}

func ways() []way {
	return []way{
		{"off", false, func() place.Policy { return ordered.FIFO{} }},
		{"edl", true, func() place.Policy { return elastic.EDLAsPublished(look) }},
		{"ours", true, func() place.Policy { return elastic.EDL() }},
	}
}

// published are the figures of the report. The mean pending time of case 1 is that
// of its ten passes; the report divides their sum by eleven.
func published() map[string]float64 {
	return map[string]float64{
		"case1_pending_s_off": 308.5, "case1_pending_s_edl": 47.2, "case1_util_off": 76.2, "case1_util_edl": 76.3,
		"case2_pending_s_off": 1.5, "case2_pending_s_edl": 53.6, "case2_util_off": 61.9, "case2_util_edl": 83.4,
		"case2_offpeak_util_off": 44.9, "case2_offpeak_util_edl": 79.4,
	}
}

// seed draws when the jobs of a pass come.
const seed = 20180115

// Run simulates and prints, and returns the figures by key.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	passes := 10
	if o.Quick {
		passes = 1
	}

	var text strings.Builder
	fmt.Fprintf(
		&text,
		"Paddle EDL's experiment in simulation: %d nodes, %d trainers on each, 2 to 60 trainers a job; %d passes, seed %d\n",
		nodes,
		perNode,
		passes,
		seed,
	)

	fmt.Fprintf(
		&text,
		"a trainer takes %s to stop; a job whose number of trainers changes is stopped and restarted; edl decides every %s\n",
		goes,
		look,
	)

	fmt.Fprintf(
		&text,
		"case 1: 20 jobs, one every 12 to 15 s as logged, stopped after 600 s; off: each takes what is there of 60 "+
			"trainers\n",
	)

	fmt.Fprintf(
		&text,
		"case 2: 6 jobs, one every 6 to 7.5 s, beside 400 -> 100 -> 400 Nginx pods in steps of 100 every 90 s; off: 15 "+
			"trainers each\n\n",
	)

	figures := map[string][]float64{}
	for pass := range passes {
		for _, y := range ways() {
			rng := rand.New(rand.NewPCG(seed, uint64(pass))) // the same for all ways
			for _, scene := range []func(*rand.Rand, *way, func(string, float64)) error{special, general} {
				note := func(key string, v float64) { figures[key+"_"+y.key] = append(figures[key+"_"+y.key], v) }
				if err := scene(rng, &y, note); err != nil {
					return nil, err
				}
			}
		}
	}

	out, err := report(&text, figures)
	if err != nil {
		return nil, err
	}

	_, err = io.WriteString(w, text.String())

	return out, err
}

// measures are the figures of the two cases, in the order of the table.
func measures() []struct{ key, words string } {
	return []struct{ key, words string }{
		{"case1_pending_s", "case 1: mean pending time, s"},
		{"case1_util", "case 1: CPUs in use, %"},
		{"case1_trainer_h", "case 1: trainer hours of work done"},
		{"case1_restarts", "case 1: stops"},
		{"case2_pending_s", "case 2: mean pending time of training jobs, s"},
		{"case2_service_pending_s", "case 2: mean pending time of Nginx pods when they rise, s"},
		{"case2_util", "case 2: CPUs in use, %"},
		{"case2_offpeak_util", "case 2: CPUs in use off peak, %"},
		{"case2_trainer_h", "case 2: trainer hours of work done"},
		{"case2_restarts", "case 2: stops"},
	}
}

func report(text *strings.Builder, figures map[string][]float64) (map[string]float64, error) {
	out := map[string]float64{}
	var rows strings.Builder
	rows.WriteString("\toff\tpublished\tedl\tpublished\tours\t\n")

	for _, m := range measures() {
		rows.WriteString(m.words + "\t")

		for _, y := range ways() {
			key := m.key + "_" + y.key
			mean, half := interval(figures[key])
			out[key] = mean

			fmt.Fprintf(&rows, "%.1f ± %.1f\t", mean, half)
			if p, known := published()[key]; known {
				fmt.Fprintf(&rows, "%.1f\t", p)
			} else if y.key != "ours" {
				rows.WriteString("\t")
			}
		}

		rows.WriteString("\n")
	}

	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := io.WriteString(table, rows.String()); err != nil {
		return nil, err
	}

	return out, table.Flush()
}
