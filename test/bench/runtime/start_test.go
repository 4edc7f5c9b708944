package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/quantile"
	"trainyard/test/bench/slurm"
	"trainyard/test/podman"
)

// firstLine prints when it is executed, in seconds and microseconds; bash does that itself, without another process.
const firstLine = "echo $EPOCHREALTIME"

// openContainers starts podman, and a node that isolates its jobs and runs containers by it.
func openContainers(ctx context.Context, b *bench) error {
	b.engine = podman.Start(b.t)

	return b.join(ctx, 1, "--isolation", "users", "--job-uids", jobUIDs, "--container-socket", b.engine.Socket)
}

// padding is what an image has beside its programs. It cannot be compressed and is there to be pulled.
const padding = 64 << 20

// contender is something that starts the first line in some way.
type contender struct {
	key     string
	samples int
	cold    func(context.Context) error // removes the image before each start; nil if it stays
	start   func(context.Context) (time.Duration, error)
}

// measureStart measures how long it takes until the first line of a program is executed. The contenders take turns, so
// that all of them find the machine in the same state.
func measureStart(ctx context.Context, b *bench) error {
	noise := make([]byte, b.size(padding))
	_, _ = rand.NewChaCha8([32]byte{2}).Read(noise) // it never fails

	image := b.engine.Push(b.t, "start:1", podman.Image{
		Programs: podman.Programs, Files: map[string]string{"/padding": string(noise)},
	})

	list, stop, err := b.contenders(ctx, image)
	if err != nil {
		return err
	}

	took, err := takeTurns(ctx, list)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}

	for key, samples := range took {
		b.figures[key] = quantile.Median(samples)
	}

	b.figures["container_over_podman_ms"] = b.figures["container_warm_ms_p50"] - b.figures["podman_run_ms_p50"]

	return nil
}

// contenders lists what starts a program on this machine. The caller calls stop when all of it has been measured.
func (b *bench) contenders(ctx context.Context, image string) (list []contender, stop func() error, err error) {
	many, few := 40, 10
	if b.quick {
		many, few = 4, 2
	}

	file := "run: " + firstLine + "\n"
	process := func(ctx context.Context) (time.Duration, error) { return b.startsJob(ctx, file, 1) }
	container := func(ctx context.Context) (time.Duration, error) {
		return b.startsJob(ctx, file+"image: "+image+"\n", 1)
	}
	run := func(command engine) func(context.Context) (time.Duration, error) {
		return func(context.Context) (time.Duration, error) { return command.prints(image) }
	}
	remove := func(command engine) func(context.Context) error {
		return func(ctx context.Context) error { return command.remove(ctx, image) }
	}

	pod := engine(func(args ...string) (string, error) { return b.engine.Run(b.t, args...), nil })
	list = []contender{
		{"process_ms_p50", many, nil, process},
		{"container_warm_ms_p50", many, nil, container},
		{"podman_run_ms_p50", many, nil, run(pod)},
		{"container_cold_ms_p50", few, remove(pod), container},
		{"podman_run_cold_ms_p50", few, remove(pod), run(pod)},
	}

	docker := engine(func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
		return string(out), err
	})
	if _, err := docker("info"); err == nil {
		list = append(list,
			contender{"docker_run_ms_p50", many, nil, run(docker)},
			contender{"docker_run_cold_ms_p50", few, remove(docker), run(docker)})
	}

	stop = func() error { return nil }

	if _, err := exec.LookPath("slurmctld"); err == nil {
		cluster, err := slurm.Start(ctx, 2)
		if err != nil {
			return nil, nil, err
		}

		stop = cluster.Stop
		list = append(list, contender{"srun_ms_p50", many, nil, b.srun(cluster)})
	}

	return list, stop, nil
}

// takeTurns starts each contender as often as it says, and returns how long each start took, in milliseconds. A first
// start of each is not counted: it opens connections, makes folders and pulls images.
func takeTurns(ctx context.Context, list []contender) (map[string][]float64, error) {
	took := map[string][]float64{}

	for turn, left := 0, true; left; turn++ {
		left = false

		for _, c := range list {
			if turn > c.samples {
				continue
			}

			left = true

			if c.cold != nil {
				if err := c.cold(ctx); err != nil {
					return nil, fmt.Errorf("%s: %w", c.key, err)
				}
			}

			one, err := c.start(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.key, err)
			}

			if turn > 0 {
				took[c.key] = append(took[c.key], float64(one.Microseconds())/1000)
			}
		}
	}

	return took, nil
}

// startsJob submits a job file and returns how long it took until the first line of the last rank was executed.
func (b *bench) startsJob(ctx context.Context, file string, ranks int) (time.Duration, error) {
	begun := time.Now()

	reply, err := b.client.Submit(ctx, api.SubmitRequest{File: file}, "")
	if err != nil {
		return 0, err
	}

	j := reply.Jobs[0].ID

	d, err := b.await(ctx, j)
	if err != nil {
		return 0, err
	}

	if d.State != job.Succeeded {
		return 0, fmt.Errorf("job %s is %s: %s", j, d.State, d.Reason)
	}

	page, err := b.client.Logs(ctx, j, api.LogFilter{Stream: "stdout", Page: api.Page{Limit: 2 * ranks}})
	if err != nil {
		return 0, err
	}

	if len(page.Lines) != ranks {
		return 0, fmt.Errorf("job %s has printed %d lines, not %d", j, len(page.Lines), ranks)
	}

	var last time.Duration

	for _, l := range page.Lines {
		one, err := since(begun, l.Text)
		if err != nil {
			return 0, err
		}

		last = max(last, one)
	}

	return last, nil
}

// await waits until a job has ended.
func (b *bench) await(ctx context.Context, j id.Job) (api.JobDetail, error) {
	for {
		d, err := b.client.Job(ctx, j)
		if err != nil || d.State.Final() {
			return d, err
		}

		time.Sleep(50 * time.Millisecond)
	}
}

// since returns how long after begun the first line was executed, by what it has printed.
func since(begun time.Time, line string) (time.Duration, error) {
	seconds, micros, ok := strings.Cut(strings.TrimSpace(line), ".")
	at, err := strconv.ParseInt(seconds+micros, 10, 64)

	if !ok || len(micros) != 6 || err != nil {
		return 0, fmt.Errorf("the first line is %q and not a time", line)
	}

	return time.UnixMicro(at).Sub(begun), nil
}

// engine runs a command of podman or Docker, and returns what it wrote.
type engine func(args ...string) (string, error)

// prints starts the first line in a container, and returns how long it took until it was executed.
func (e engine) prints(image string) (time.Duration, error) {
	begun := time.Now()

	text, err := e("run", "--rm", image, "bash", "-c", firstLine)
	if err != nil {
		return 0, fmt.Errorf("start a container: %w: %s", err, text)
	}

	// What the engine says while it pulls the image comes before.
	lines := strings.Split(strings.TrimSpace(text), "\n")

	return since(begun, lines[len(lines)-1])
}

// remove removes an image, once the containers in which it was used are gone.
func (e engine) remove(ctx context.Context, image string) error {
	for range 200 {
		left, err := e("ps", "--all", "--quiet", "--filter", "ancestor="+image)
		if err != nil {
			return fmt.Errorf("list containers: %w: %s", err, left)
		}

		if strings.TrimSpace(left) == "" {
			break
		}

		clock.Sleep(ctx, 50*time.Millisecond)
	}

	if text, err := e("rmi", image); err != nil {
		return fmt.Errorf("remove the image: %w: %s", err, text)
	}

	return nil
}

// srun starts the first line by Slurm.
func (b *bench) srun(cluster *slurm.Cluster) func(context.Context) (time.Duration, error) {
	file := filepath.Join(b.yard.Folder, "srun")
	start := cluster.Interactive("exec bash -c '" + firstLine + " > " + file + "'")

	return func(ctx context.Context) (time.Duration, error) {
		begun := time.Now()

		if err := start(ctx); err != nil {
			return 0, err
		}

		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}

		return since(begun, string(text))
	}
}
