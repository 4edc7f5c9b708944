package gangs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/job"
	"trainyard/test/netlab"
)

func TestDataParallelTraining(t *testing.T) {
	for _, nodes := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			command := torchrun(t)
			w := newWorld(t, nodes, false)
			j := w.submit("train", fmt.Sprintf("run: %s\nresources: {nodes: %d, cpus: 1}\n", command, nodes))
			w.ends(j, job.Succeeded)

			out := w.output(j)
			for rank := range nodes {
				begins := fmt.Sprintf("rank=%d size=%d master=10.91.", rank, nodes)
				if !strings.Contains(out, begins) || !strings.Contains(out, fmt.Sprintf("rank=%d loss=0.0", rank)) {
					t.Errorf("rank %d did not train with the others:\n%s", rank, out)
				}
			}

			if strings.Count(out, "same_on_all_ranks=True") != nodes {
				t.Errorf("the ranks do not have the same weights:\n%s", out)
			}

			one := w.command("logs", string(j), "--rank", "1")
			if !strings.Contains(one, "rank=1 ") || strings.Contains(one, "rank=0 ") {
				t.Errorf("the output of rank 1 is:\n%s", one)
			}
		})
	}
}

// TestTrainingFindsTheNetworkThatConnectsItsNodes closes the network by which the nodes reach the server for everything
// between nodes, so that a second one is left, of which only the nodes know.
func TestTrainingFindsTheNetworkThatConnectsItsNodes(t *testing.T) {
	command := torchrun(t)
	w := newWorld(t, 2, true)
	first, second := w.lab.Host("n1"), w.lab.Host("n2")
	w.must(first.Break(netlab.CutFrom(second.Address)...))

	j := w.submit("train", "run: "+command+"\nresources: {nodes: 2, cpus: 1}\n")
	w.ends(j, job.Succeeded)

	if out := w.output(j); strings.Count(out, "master=10.92.") != 2 || strings.Count(out, "interface=eth1") != 2 {
		t.Errorf("the training did not use the second network:\n%s", out)
	}
}

func TestDeclaredNetworkIsUsed(t *testing.T) {
	w := newWorld(t, 2, true)

	for _, name := range w.names {
		w.must(w.agents[name].Kill())
		w.must(w.lab.Host(name).Do(func() (err error) {
			w.agents[name], err = w.StartAgent(name, w.token, "--cpus", "2", "--fake-gpus", "none", "--probe", "off",
				"--address", "10.92.0.0/16")
			return err
		}))
	}

	w.await("the nodes have their declared addresses", func() bool {
		return strings.Count(w.command("nodes", "-o", "wide"), "10.92.") == 2
	})

	j := w.submit("it", "run: cat $TRAINYARD_HOSTFILE; echo master=$MASTER_ADDR\nresources: {nodes: 2, cpus: 1}\n")
	w.ends(j, job.Succeeded)

	out := w.output(j)
	for _, name := range w.names {
		if strings.Count(out, w.lab.Host(name).Backbone+" slots=1") != 2 {
			t.Errorf("the host files have no %s:\n%s", name, out)
		}
	}

	if strings.Count(out, "master=10.92.") != 2 {
		t.Errorf("the ranks meet elsewhere:\n%s", out)
	}
}

// TestNodesThatDoNotReachEachOther start all the same, because not every job needs that, and say so.
func TestNodesThatDoNotReachEachOther(t *testing.T) {
	w := newWorld(t, 2, false)
	w.must(w.lab.Host("n1").Break(netlab.CutFrom(w.lab.Host("n2").Address)...))
	j := w.submit("it", "run: echo apart\nresources: {nodes: 2, cpus: 1}\n")
	w.ends(j, job.Succeeded)

	out := w.output(j)
	if strings.Count(out, "did not reach rank") < 2 || strings.Count(out, "apart") != 2 {
		t.Errorf("the output does not say who did not reach whom:\n%s", out)
	}
}

func TestFirstFailingRankOfATrainingIsNamed(t *testing.T) {
	command := torchrun(t)
	w := newWorld(t, 2, false)
	j := w.submit("train", "run: "+command+"\nresources: {nodes: 2, cpus: 1}\nenv: {FAIL_RANK: 1}\ngrace: 30m\n")
	d := w.ends(j, job.Failed)

	node := d.Runs[0].Ranks[1].Node
	want := fmt.Sprintf("rank 1 of 2 on %s failed first: ", node)
	if !strings.HasPrefix(d.Reason, want) || !strings.Contains(d.Reason, "ValueError: a bad batch on rank 1") {
		t.Errorf("the job says %q, want %q", d.Reason, want)
	}

	shown := w.command("job", string(j))
	if !strings.Contains(shown, "Last lines of rank 1 on "+string(node)) || !strings.Contains(shown, "raise ValueError(") {
		t.Errorf("the last lines of the rank are not shown:\n%s", shown)
	}
}

// TestRanksThatDoNotEndAreKilled has a rank that waits for one that failed and does not listen to signals.
func TestRanksThatDoNotEndAreKilled(t *testing.T) {
	w := newWorld(t, 2, false)
	j := w.submit("it", `
run: |
  if [ $NODE_RANK = 1 ]; then echo boom; exit 3; fi
  trap '' TERM
  while true; do sleep 1; done
resources: {nodes: 2, cpus: 1}
grace: 1h
`)
	d := w.ends(j, job.Failed)

	if want := fmt.Sprintf("rank 1 of 2 on %s failed first: exit code 3; last line of output: boom",
		d.Runs[0].Ranks[1].Node); d.Reason != want {
		t.Errorf("the job says %q, want %q", d.Reason, want)
	}
}

func TestSlowStarterIsNamedAndNobodyStartsBefore(t *testing.T) {
	w := newWorld(t, 2, false)
	open := filepath.Join(w.shared, "open")
	j := w.submit("it", fmt.Sprintf(`
setup: if [ $NODE_RANK = 1 ]; then until [ -e %s ]; do sleep 0.1; done; fi
run: "[ -e %s ] && echo started"
resources: {nodes: 2, cpus: 1}
`, open, open))

	w.await("the slow rank is named", func() bool {
		d := w.job(j)
		return strings.HasPrefix(d.Reason, "starting: 1 of 2 ranks ready for 10s, waiting for rank 1 on n")
	})

	if shown := w.command("job", string(j)); !strings.Contains(shown, "ready, waiting for the other ranks") {
		t.Errorf("the other rank does not say that it waits:\n%s", shown)
	}

	if out := w.output(j); strings.Contains(out, "started") {
		t.Errorf("a program started before all were ready:\n%s", out)
	}

	w.must(os.WriteFile(open, nil, 0o600))
	w.ends(j, job.Succeeded)

	if out := w.output(j); strings.Count(out, "started") != 2 {
		t.Errorf("the programs printed:\n%s", out)
	}
}

// TestAllOrNothing submits two gangs that need all nodes: at no time has each a part of them.
func TestAllOrNothing(t *testing.T) {
	w := newWorld(t, 2, false)
	file := fmt.Sprintf(`
run: |
  echo $TRAINYARD_JOB_ID $NODE_RANK begins >> %[1]s/order
  sleep 0.2
  echo $TRAINYARD_JOB_ID $NODE_RANK ends >> %[1]s/order
resources: {nodes: 2, cpus: 2}
`, w.shared)

	a, b := w.submit("a", file), w.submit("b", file)
	w.ends(a, job.Succeeded)
	w.ends(b, job.Succeeded)

	text, err := os.ReadFile(filepath.Join(w.shared, "order"))
	w.must(err)

	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 8 {
		t.Fatalf("the gangs ran as\n%s", text)
	}

	for i, line := range lines {
		if strings.HasPrefix(line, string(a)+" ") != (i < 4) {
			t.Fatalf("the gangs ran as\n%s", text)
		}
	}
}

func TestNodesOfOneRackComeFirst(t *testing.T) {
	w := newWorld(t, 4, false, "hall/a", "hall/b", "hall/a", "hall/b")
	file := fmt.Sprintf("run: until [ -e %s/open ]; do sleep 0.1; done\nresources: {nodes: 2, cpus: 2}\n", w.shared)

	for _, name := range []string{"first", "second"} {
		j := w.submit(name, file)
		w.await("the job runs", func() bool { return w.job(j).State == job.Running })

		ranks := w.job(j).Runs[0].Ranks
		if odd := map[string]bool{"n1": true, "n3": true}; odd[string(ranks[0].Node)] != odd[string(ranks[1].Node)] {
			t.Errorf("the nodes of %s are %s and %s, which are in two racks", name, ranks[0].Node, ranks[1].Node)
		}
	}

	w.must(os.WriteFile(filepath.Join(w.shared, "open"), nil, 0o600))
}
