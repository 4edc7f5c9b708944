package gangs_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/test/podman"
	"trainyard/test/yardtest"
)

// containerNodesFlag is 2 in make test, where a start of PyTorch in each container takes its time.
var containerNodesFlag = flag.Int("container-nodes", 2, "on how many nodes a training in containers is")

// jobUIDs are those of the jobs of each node.
var jobUIDs = []string{"312000-312099", "312100-312199", "312200-312299", "312300-312399"}

// newContainerWorld is a world of nodes, each of which has an engine of its own. They pull from one registry.
func newContainerWorld(t *testing.T, nodes int, network string) (*world, []*podman.Engine) {
	t.Helper()
	w := newWorld(t, nodes, false)
	registry := podman.NewRegistry(t, w.lab.Self())

	var engines []*podman.Engine
	for i, name := range w.names {
		host := w.lab.Host(name)
		engine := podman.Start(t, podman.From(registry), podman.On(host.Do))
		engines = append(engines, engine)

		t.Cleanup(func() { yardtest.Unblock(jobUIDs[i]) })

		w.must(w.agents[name].Kill())
		w.must(host.Do(func() (err error) {
			w.agents[name], err = w.StartAgent(name, w.token, "--cpus", "2", "--fake-gpus", "none", "--probe", "off",
				"--isolation", "users", "--job-uids", jobUIDs[i], "--container-socket", engine.Socket,
				"--container-network", network)

			return err
		}))
	}

	w.await("the nodes run containers", func() bool {
		for _, name := range w.names {
			if !strings.Contains(w.command("nodes", name), podman.Name()+" ") {
				return false
			}
		}

		return true
	})

	return w, engines
}

// torchImage is an image of this machine's PyTorch, with the training in it.
func torchImage(t *testing.T) podman.Image {
	t.Helper()
	_ = torchrun(t) // without PyTorch the test ends here

	program, err := os.ReadFile("testdata/train.py")
	if err != nil {
		t.Fatal(err)
	}

	var notes bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "testdata/files.py")
	cmd.Stderr = &notes
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the files of PyTorch: %v: %s", err, notes.Bytes())
	}

	img := podman.Shell()
	img.Files, img.Links = map[string]string{"/opt/train.py": string(program)}, map[string]string{}

	for line := range strings.Lines(string(list)) {
		path, target, link := strings.Cut(strings.TrimSpace(line), " -> ")
		if link {
			img.Links[path] = target
			continue
		}

		img.Copies = append(img.Copies, path)
	}

	return img
}

// TestDataParallelTrainingInContainers trains with torchrun on several nodes, in containers that have the network of
// their node.
func TestDataParallelTrainingInContainers(t *testing.T) {
	n := *containerNodesFlag
	w, engines := newContainerWorld(t, n, "host")
	image := engines[0].Push(t, "torch:1", torchImage(t))
	resources := fmt.Sprintf("resources: {nodes: %d, cpus: 1}\n", n)
	j := w.submit("train", `
image: `+image+`
run: |
  [ -e /opt/train.py ] && ! [ -e /home ] && echo contained
  cat $TRAINYARD_HOSTFILE
  /usr/bin/python3 -m torch.distributed.run -r 1 -t 1 --log_dir logs /opt/train.py
`+resources)
	d := w.ends(j, job.Succeeded)

	out := w.output(j)
	for rank := range n {
		begins := fmt.Sprintf("rank=%d size=%d master=10.91.", rank, n)
		if !strings.Contains(out, begins) || !strings.Contains(out, fmt.Sprintf("rank=%d loss=0.0", rank)) {
			t.Errorf("rank %d did not train with the others:\n%s", rank, out)
		}

		if digest := d.Runs[0].Ranks[rank].Digest; !strings.Contains(digest, "/torch@sha256:") {
			t.Errorf("the image of rank %d is %q", rank, digest)
		}
	}

	for _, want := range []string{"same_on_all_ranks=True", "contained", w.lab.Host("n1").Address + " slots=1"} {
		if strings.Count(out, want) != n {
			t.Errorf("%q is not in the output of all ranks:\n%s", want, out)
		}
	}

	// A rank that fails stops the others, and is named.
	j = w.submit("fails", `
image: `+image+`
run: |
  if [ $NODE_RANK = 1 ]; then echo boom; exit 3; fi
  trap '' TERM
  while true; do sleep 1; done
grace: 1h
`+resources)
	if d := w.ends(j, job.Failed); !strings.HasPrefix(d.Reason, fmt.Sprintf("rank 1 of %d on n", n)) ||
		!strings.HasSuffix(d.Reason, "failed first: exit code 3; last line of output: boom") {
		t.Errorf("the job says %q", d.Reason)
	}

	for _, e := range engines {
		w.await("no container is left", func() bool { return len(e.Containers(t)) == 0 })
	}

	w.await("no process is left", w.clean)
}

// TestContainersWithNetworksOfTheirOwnRunNoGangs has nodes whose containers could not reach each other: a job for one
// node runs, one for two is refused.
func TestContainersWithNetworksOfTheirOwnRunNoGangs(t *testing.T) {
	w, engines := newContainerWorld(t, 2, "own")
	image := engines[0].Push(t, "shell:1", podman.Shell())

	client, err := w.Client(w.Admin())
	w.must(err)
	defer client.Close()

	file := "name: gang\nimage: " + image + "\nrun: echo never\nresources: {nodes: 2, cpus: 1}\n"
	_, err = client.Submit(w.ctx, api.SubmitRequest{File: file}, "")

	var f *fault.Error
	if !errors.As(err, &f) || !strings.Contains(f.Message, "needs a node that runs containers, and none that could run it does; "+
		"n1: its containers have networks of their own, so that those of several nodes cannot reach each other") ||
		!strings.Contains(f.Remedy, "start the agents of nodes with --container-network host, or ask for one node") {
		t.Errorf("a job on two nodes: %v", err)
	}

	w.ends(w.submit("one", "image: "+image+"\nrun: echo alone\nresources: {cpus: 1}\n"), job.Succeeded)
}
