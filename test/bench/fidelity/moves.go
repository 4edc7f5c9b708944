package fidelity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// units is how many units of work a job that saves does in a second on the slowest kind of GPU: so many that the number
// of a checkpoint says well how much of its work is in there.
const units = 100

const (
	// saveEvery is how often such a job saves, and savedSize how much.
	saveEvery = 2 * time.Second
	savedSize = 1 << 20
)

// saver is the program of jobs that save: it sleeps as long as it would compute on the GPUs that it has, saves at
// intervals and when it is stopped, and continues from its newest checkpoint.
const saver = `import os, shutil, signal, sys, time

work, every, size = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
folder, here = os.environ["TRAINYARD_CHECKPOINT_DIR"], os.environ["TRAINYARD_RANK_DIR"]
gpus = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
speeds = (speed.split("=") for speed in sys.argv[4:])
rate = next(float(units) for prefix, units in speeds if "/" + prefix in here) * gpus ** SCALING
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

def saved():
    return sorted(int(name[5:]) for name in os.listdir(folder) if name.startswith("step-"))

def save(done):
    new = os.path.join(folder, "tmp-new")
    os.mkdir(new)
    with open(os.path.join(new, "state"), "wb") as f:
        f.write(os.urandom(size))
    old = saved()
    os.rename(new, os.path.join(folder, "step-%d" % done))
    for step in old[:-1]:
        shutil.rmtree(os.path.join(folder, "step-%d" % step))

done = max(saved(), default=0)
last, worked = done, 0.0  # of its newest checkpoint, and seconds since then
since = time.monotonic()
while done < work:
    wait = min((work - done) / rate, every - worked, 0.05)
    info = signal.sigtimedwait([signal.SIGTERM], wait)
    stop = info and info.si_signo == signal.SIGTERM  # other numbers come from Python, after it was suspended
    now = time.monotonic()
    passed = now - since
    if passed > wait + 0.3:
        passed = wait  # it was suspended, and computes nothing meanwhile
    done, worked, since = done + passed * rate, worked + passed, now
    if done < work and (stop or worked >= every):
        worked = 0.0
        if int(done) > last:
            last = int(done)
            save(last)
    if stop:
        break
`

// program returns the text of the program of jobs that save.
func program() string { return strings.ReplaceAll(saver, "SCALING", fmt.Sprint(scalingPower)) }

// arguments are those of the program of a job that saves.
func (t *task) arguments() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%g %g %d", t.work*units, saveEvery.Seconds(), savedSize)

	for _, k := range kinds {
		fmt.Fprintf(&b, " %s=%g", k.prefix, k.speed*units)
	}

	return b.String()
}

// The policies of the streams whose jobs save. Times are those of streams in which an hour stands for a day.
const (
	preempting = "srtf"
	moving     = "andreas:restart=1s"
	growing    = "harvest:ahead=10s:patience=1m"
	homing     = ":relocate_left=4s:relocate_stay=4s:relocate_delay=1"
)

// The seeds are chosen as those of the other streams, and so that the policies of the stream really stop jobs in it.
const (
	preemptSeed = 4
	growSeed    = 11
	homeSeed    = 2
)

// movingStreams returns the streams whose jobs save checkpoints, so that policies preempt, move and resize them.
func movingStreams(quick bool) []stream {
	if quick {
		return []stream{{
			name: "preempt", about: "a short job preempts a long one", machines: trainingNodes(1), saves: true,
			policies: []string{preempting},
			tasks: []task{
				{name: "long", gpus: 1, work: 12, objective: job.ObjectiveTime, place: job.PlaceAny},
				{name: "short", at: 3 * time.Second, gpus: 1, work: 1, objective: job.ObjectiveTime, place: job.PlaceAny},
			},
		}}
	}

	own := []machine{{"v100-1", "2xV100:16GB"}, {"a100-1", "1xA100:40GB"}}
	large := []machine{{"v100-1", "4xV100:16GB"}, {"a100-1", "2xA100:40GB"}}
	length := 120 * time.Second

	return []stream{
		{
			name: "preempt", about: "jobs that save, of which others preempt some, on two nodes of the team's own",
			machines: own, saves: true, policies: []string{preempting, moving},
			tasks: savers(preemptSeed, poisson(preemptSeed, 20, length), 1),
		},
		{
			name: "grow", about: "elastic jobs that save, on two nodes of the team's own", machines: large, saves: true,
			policies: []string{growing, moving}, tasks: savers(growSeed, poisson(growSeed, 8, length), 4),
		},
		{
			name: "home", about: "jobs that save, on one node of the team's own and on-demand nodes from which they come home",
			machines: own[:1], cloud: true, saves: true,
			policies: []string{"fifo" + homing, "rules:time=3000:balanced=120:cost=3" + homing, "harvest" + homing},
			tasks:    savers(homeSeed, bursts(homeSeed, 20, 5, length), 1),
		},
	}
}

// savers makes jobs that save, on up to so many GPUs. Every third has a deadline.
func savers(seed uint64, at []time.Duration, most int) []task {
	r := rand.New(rand.NewPCG(seed, 6))

	tasks := make([]task, len(at))
	for i := range tasks {
		t := task{
			name: fmt.Sprintf("job-%02d", i), at: at[i], gpus: 1, most: most, objective: job.ObjectiveBalanced,
			place: job.PlaceAny,
		}
		t.work = 12 * scaling(most) * math.Exp(r.NormFloat64()*0.6)

		if i%3 == 0 {
			t.deadline = job.Seconds(1.2*t.work/scaling(most) + 5)
		}

		tasks[i] = t
	}

	return tasks
}

// movement is how often jobs were stopped and continued elsewhere, or with another number of GPUs.
type movement struct{ moves, resizes int }

// seen counts both.
func (m movement) seen() int { return m.moves + m.resizes }

// movementOf returns how often a job was moved and resized.
func movementOf(runs []api.Run) movement {
	var m movement
	for i := 1; i < len(runs); i++ {
		before, after := placesOf(&runs[i-1]), placesOf(&runs[i])

		switch {
		case len(before) != len(after):
			m.resizes++
		case !slices.Equal(before, after):
			m.moves++
		}
	}

	return m
}

// placesOf returns the GPUs of a run.
func placesOf(r *api.Run) []string {
	var list []string
	for _, k := range r.Ranks {
		for _, g := range k.GPUs {
			list = append(list, fmt.Sprint(k.Node, g))
		}
	}

	return list
}

// Of a probe of jobs that save: their work, and how long they work until they are moved.
const (
	probeSaves = 5 * time.Second
	probeStays = 3 * time.Second
)

// probeMoves measures how long it takes to start a job that saves, to stop it and to continue it elsewhere.
func (l *live) probeMoves(ctx context.Context, s *stream, p *probe, samples int) error {
	s.saves = true
	defer func() { s.saves = false }()

	t := task{name: "save", work: probeSaves.Seconds()}

	took, err := l.median(ctx, s, p, samples, t)
	if err != nil {
		return err
	}

	p.resume = max(took-p.overhead-probeSaves, 0)

	var saves, restores []time.Duration
	for range samples {
		save, restore, err := l.move(ctx, s, p, t)
		if err != nil {
			return err
		}

		saves, restores = append(saves, save), append(restores, restore)
	}

	slices.Sort(saves)
	slices.Sort(restores)
	p.save, p.restore = saves[samples/2], restores[samples/2]

	return nil
}

// move moves a job to another node, and returns how long it held its node after it was stopped, and how much longer
// than a first one its next start took.
func (l *live) move(ctx context.Context, s *stream, p *probe, t task) (save, restore time.Duration, err error) {
	t.gpus, t.objective, t.place = 1, job.ObjectiveTime, job.PlaceLocal

	j, err := l.submit(ctx, s, p, &t)
	if err != nil {
		return 0, 0, err
	}

	node, err := l.awaitWork(ctx, j, probeStays)
	if err != nil {
		return 0, 0, err
	}

	stopped := time.Now()
	if _, err := l.client.DrainNode(ctx, node); err != nil {
		return 0, 0, err
	}

	ended, err := l.finish(ctx, []id.Job{j})
	if err != nil {
		return 0, 0, err
	}
	if _, err := l.client.UncordonNode(ctx, node); err != nil {
		return 0, 0, err
	}

	d := &ended[0]
	if m := movementOf(d.Runs); m.moves != 1 {
		return 0, 0, fmt.Errorf("the job of the probe that was drained moved %d times, want once", m.moves)
	}

	save = d.Runs[1].Ordered.Sub(stopped)
	restore = d.Ended.Sub(d.Submitted) - job.Seconds(t.work) - 2*p.begin(s) - save

	return save, max(restore, 0), nil
}

// awaitWork waits until a job has run for so long, and returns its node.
func (l *live) awaitWork(ctx context.Context, j id.Job, worked time.Duration) (id.Node, error) {
	for {
		d, err := l.client.Job(ctx, j)
		if err != nil {
			return "", err
		}
		if d.State.Final() {
			return "", errors.New("the job of the probe ended before it was moved")
		}

		if n := len(d.Runs); n > 0 && d.Runs[n-1].Started != nil && time.Since(*d.Runs[n-1].Started) >= worked {
			return d.Runs[n-1].Ranks[0].Node, nil
		}

		select {
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the work of %s: %w", j, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
