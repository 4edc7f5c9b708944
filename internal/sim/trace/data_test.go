package trace_test

import (
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// The published files hold so many jobs, as their descriptions say.
func TestPublishedTraces(t *testing.T) {
	gavel := func(name string) trace.Options { return trace.Options{Tables: data(t, "gavel", name), PerNode: 4} }
	for _, c := range []struct {
		name          []string
		opts          func() trace.Options
		jobs, leftOut int
	}{
		{[]string{"philly", "philly_jobs.csv.gz"}, nil, 56876, 0},
		{[]string{"philly", "philly_jobs.csv.gz"}, func() trace.Options { return trace.Options{Cluster: "6c71a0", PerNode: 8} }, 9953, 46923},
		{[]string{"swf", "KTH-SP2-1996-2.swf.gz"}, nil, 19942, 0},
		{[]string{"swf", "CEA-Curie-sample.swf.gz"}, nil, 20998, 0},
		{[]string{"swf", "MetaCentrum-wagap-2013.swf.gz"}, nil, 12528, 2},
		{[]string{"swf", "NASA-iPSC-1993-3.1-cln.swf.gz"}, nil, 18239, 0},
		{[]string{"rlscheduler", "lublin_256.swf.gz"}, nil, 10000, 0},
		{[]string{"alibaba-openb-2023", "openb_pod_list_default.csv.gz"}, nil, 4365, 1341},
		{[]string{"gavel", "traces", "physical_cluster", "max_min_fairness.trace"}, func() trace.Options { return gavel("physical_cluster_throughputs.json.gz") }, 96, 0},
		{[]string{"gavel", "traces", "physical_cluster", "minimize_makespan.trace"}, func() trace.Options { return gavel("physical_cluster_throughputs.json.gz") }, 100, 0},
		{[]string{"bftrainer-summit", "imagenet_jobs.csv"}, func() trace.Options {
			return trace.Options{Tables: data(t, "bftrainer-summit", "imagenet_throughput.csv")}
		}, 1001, 0},
		{[]string{"sia", "workloads", "philly", "workload-1.csv"}, func() trace.Options {
			return trace.Options{Tables: data(t, "sia", "traces") + string(filepath.ListSeparator) + data(t, "pollux", "traces")}
		}, 160, 0},
	} {
		t.Run(c.name[len(c.name)-1], func(t *testing.T) {
			name := data(t, c.name...)
			var o trace.Options
			if c.opts != nil {
				o = c.opts()
			}

			r, err := trace.Open(name, "", o)
			if err != nil {
				t.Fatal(err)
			}

			n := 0
			each(t, r, func(*sim.Job) { n++ })

			if n != c.jobs || r.LeftOut() != c.leftOut {
				t.Errorf("%d jobs, %d left out; want %d and %d", n, r.LeftOut(), c.jobs, c.leftOut)
			}
		})
	}
}

func TestPhillyGPUTimeIsThatOfTheTable(t *testing.T) {
	r, err := trace.Open(data(t, "philly", "philly_jobs.csv.gz"), "", trace.Options{Cluster: "6c71a0"})
	if err != nil {
		t.Fatal(err)
	}

	var lasts time.Duration
	n := 0
	each(t, r, func(j *sim.Job) {
		lasts += j.Duration / 1000
		n++
	})

	// FIFO on 64 GPUs took 162,504 s in the mean and waited 146,468 s of them.
	near(t, "the mean run time", 1000*lasts.Seconds()/float64(n), 162504-146468, 0.0001)
}

func TestOpenbClusterIsThePublishedOne(t *testing.T) {
	list, err := trace.OpenbNodes(data(t, "alibaba-openb-2023", "openb_node_list_all_node.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}

	gpus := 0
	for i := range list {
		gpus += len(list[i].Inventory.GPUs)
	}

	if len(list) != 1523 || gpus != 6212 {
		t.Errorf("%d nodes with %d GPUs", len(list), gpus)
	}
}
