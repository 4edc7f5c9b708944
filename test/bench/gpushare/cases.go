package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// capped is the cap, in GiB, up to which programs allocate.
const capped = 10

// acts returns the cases, in the order in which they are run: what is compared is close together. What depends on the
// processor varies more than the rest, and is in one act.
func acts() [][]scene {
	var all [][]scene
	for _, s := range scenes() {
		all = append(all, []scene{s})
	}

	return append(all,
		[]scene{
			pair("host_sliced", sliced, "host", "host", 0.5), pair("host_50_50", shared, "host", "host", 0.5),
		},
		[]scene{
			alone("host", sliced),
			pair("host_beside_gpu_sliced", sliced, "host", "gpu", 0.5),
			pair("host_beside_gpu_50_50", shared, "host", "gpu", 0.5),
		},
	)
}

// scenes returns the cases that are run by themselves.
func scenes() []scene {
	all := []scene{
		alone("gpu", sliced), alone("gpu", shared),
		pair("gpu_sliced", sliced, "gpu", "gpu", 0.5),
		pair("gpu_50_50", shared, "gpu", "gpu", 0.5),
		pair("gpu_70_30", shared, "gpu", "gpu", 0.7),
		pair("gpu_90_10", shared, "gpu", "gpu", 0.9),
		{name: "gpu_50_30_20", way: shared, programs: []program{
			{name: "a", kind: "gpu", terms: "weight=0.5"},
			{name: "b", kind: "gpu", terms: "weight=0.3"},
			{name: "c", kind: "gpu", terms: "weight=0.2"},
		}},
		pair("gpu_mps", mps, "gpu", "gpu", 0.5),
		{name: "guaranteed", way: shared, programs: []program{
			{name: "a", kind: "gpu", terms: "weight=0.7,class=guaranteed"},
			{name: "b", kind: "gpu", terms: "weight=0.3,class=opportunistic"},
		}},
		{name: "limit_30", way: shared, programs: []program{{name: "a", kind: "gpu", terms: "weight=0.3,limit=0.3"}}},
		alone("graph", sliced), pair("graph_70_30", shared, "graph", "graph", 0.7),
		alone("compile", sliced), pair("compile_70_30", shared, "compile", "compile", 0.7),
		alone("plain", sliced), pair("plain_70_30", shared, "plain", "plain", 0.7),
		{name: "fault", way: shared, programs: []program{
			{name: "a", kind: "gpu", terms: "weight=0.5"}, {name: "b", kind: "fault", terms: "weight=0.5"},
		}},
		{name: "broker_killed", way: shared, during: killBroker, programs: []program{
			{name: "a", kind: "gpu", terms: "weight=0.7"}, {name: "b", kind: "gpu", terms: "weight=0.3"},
		}},
	}

	for _, allocator := range []string{"native", "expandable", "async"} {
		all = append(all, scene{name: "cap_" + allocator, way: shared, during: measureFull, programs: []program{{
			name: "a", kind: "fill", terms: fmt.Sprintf("weight=1,cap=%d", capped), env: []string{map[string]string{
				"native":     "PYTORCH_CUDA_ALLOC_CONF=",
				"expandable": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
				"async":      "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
			}[allocator]},
		}}})
	}

	return all
}

// alone is one program, with the library or without.
func alone(kind string, w way) scene {
	name := kind + "_alone"
	if w == shared {
		name += "_library"
	}

	return scene{name: name, way: w, programs: []program{{name: "a", kind: kind, terms: "weight=1"}}}
}

// pair is two programs, of which the first has a share and the second the rest.
func pair(name string, w way, first, second string, weight float64) scene {
	return scene{name: name, way: w, programs: []program{
		{name: "a", kind: first, terms: "weight=" + strconv.FormatFloat(weight, 'f', 2, 64)},
		{name: "b", kind: second, terms: "weight=" + strconv.FormatFloat(1-weight, 'f', 2, 64)},
	}}
}

// killBroker kills the broker in the first window and starts one again in the second.
func killBroker(ctx context.Context, st *stage) error {
	if err := st.inWindow(ctx, 0); err != nil {
		return err
	}
	if err := st.broker.kill(); err != nil {
		return err
	}
	if err := st.inWindow(ctx, 1); err != nil {
		return err
	}

	broker, err := st.serve(ctx)
	st.broker = broker

	return err
}

// measureFull waits until a program has all memory that it gets, and asks the driver how much that is.
func measureFull(ctx context.Context, st *stage) error {
	p := st.players[0]

	select {
	case <-p.filled:
	case <-p.ended:
		return fmt.Errorf("it ended before its memory was full: %s", p.tail())
	case <-ctx.Done():
		return fmt.Errorf("its memory was not full in time: %s", p.tail())
	}

	used, err := query(ctx, "memory.used")
	if err != nil {
		return err
	}

	mib, err := strconv.ParseUint(used, 10, 64)
	if err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.full = mib<<20 - st.bench.empty

	return nil
}

// query asks the driver for something about the GPU.
func query(ctx context.Context, what string) (string, error) {
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--id=0", "--query-gpu="+what, "--format=csv,noheader,nounits")

	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask nvidia-smi for %s: %w", what, err)
	}

	return strings.TrimSpace(string(text)), nil
}
