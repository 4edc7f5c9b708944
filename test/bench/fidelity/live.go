package fidelity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
	"trainyard/internal/quantile"
	"trainyard/test/yardtest"
)

// outcome is what a stream came to under a policy, live or simulated.
type outcome struct {
	cost       float64 // dollars: own nodes in use, and all rent
	energyCost float64 // of that, for energy
	completion float64 // mean, seconds
	p95        float64
	lateness   float64 // of all jobs together, seconds
	makespan   float64
	nodes      int // provisioned
	stops      int // runs that a plan stopped or suspended in place
	suspended  int // of these suspended
	movement
}

// pace is how many batches a second the input of a training delivers: so few that a processor that is only half as fast
// at one time as at another does not decide how long a training is.
const pace = 10

// trainer is the program of the trainings: matrix products in plain Python, so that it needs nothing. A step begins
// when its batch is there; batches that a step kept waiting are there at once. At its end it says how many steps it did
// in a second.
const trainer = `import sys, time

def step(a):
    n = len(a)
    b = [[sum(a[i][k] * a[k][j] for k in range(n)) for j in range(n)] for i in range(n)]
    top = max(max(r) for r in b)
    return [[x / top for x in r] for r in b]

a = [[((i * 7 + j * 3) % 11) / 11 for j in range(56)] for i in range(56)]
begin, pace = time.monotonic(), float(sys.argv[2])
for i in range(int(sys.argv[1])):
    time.sleep(max(begin + (i + 1) / pace - time.monotonic(), 0))
    a = step(a)
print(a[0][0])
print(int(sys.argv[1]) / (time.monotonic() - begin))
`

// The programs in the folder of a yard.
const (
	trainerFile = "train.py"
	saverFile   = "save.py"
)

// live is a real yard: server, agents and what they run are processes of this machine.
type live struct {
	yard   *yardtest.Yard
	client *api.Client
	folder string
	python string // itself: a wrapper that looks for it first may take long
}

// open starts a yard for a stream.
func open(ctx context.Context, binary, parent, policy string, s *stream, p *probe) (*live, error) {
	folder, err := os.MkdirTemp(parent, s.name+"-")
	if err != nil {
		return nil, err
	}

	python, err := exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return nil, fmt.Errorf("look for python3: %w", err)
	}

	l := &live{folder: folder, python: strings.TrimSpace(string(python))}
	prices := filepath.Join(folder, "tariff.yaml")
	flags := []string{"--tariff", prices, "--policy", policy, "--report-every", "500ms"}

	if s.cloud {
		cloud, err := l.writeCloud(p)
		if err != nil {
			return nil, err
		}

		flags = append(flags, "--clouds", cloud)
	}

	if err := errors.Join(
		os.WriteFile(prices, []byte(tariff), 0o600),
		os.WriteFile(filepath.Join(folder, trainerFile), []byte(trainer), 0o600),
		os.WriteFile(filepath.Join(folder, saverFile), []byte(program()), 0o600),
	); err != nil {
		return nil, err
	}

	l.yard = &yardtest.Yard{Binary: binary, Folder: folder, Flags: flags}
	if err := l.start(ctx, s); err != nil {
		return nil, errors.Join(err, l.close())
	}

	return l, nil
}

// start starts the server and the agents.
func (l *live) start(ctx context.Context, s *stream) error {
	if err := l.yard.Open(ctx); err != nil {
		return err
	}
	if err := l.yard.LogIn(ctx); err != nil {
		return err
	}

	token, err := l.yard.JoinToken(ctx, len(s.machines))
	if err != nil {
		return err
	}

	for _, m := range s.machines {
		if _, err := l.yard.StartAgent(
			m.name, token, "--fake-gpus", m.gpus, "--cpus", "8", "--memory", "16GB", "--probe", "off",
		); err != nil {
			return err
		}
	}

	for _, m := range s.machines {
		if err := l.yard.AwaitAgent(ctx, m.name); err != nil {
			return err
		}
	}

	l.client, err = l.yard.Client(l.yard.Admin())

	return err
}

// providerBoot is how long the cloud takes from a request to the start of the machine's agent.
const providerBoot = 3 * time.Second

// writeCloud writes what can be provisioned, with the boot time that a probe measured, and how fast checkpoints travel.
func (l *live) writeCloud(p *probe) (string, error) {
	clouds := filepath.Join(l.folder, "clouds.yaml")
	way := p.way()

	return clouds, errors.Join(
		os.WriteFile(clouds, fmt.Appendf(nil,
			"yard: fidelity\nprovision: {idle: %s, max_nodes: %d, list_every: 2s}\nroads: {in: %s, across: %s}\nproviders:\n"+
				"  - {name: lab, kind: process, dir: machines, boot: %s, offers: offers.yaml}\n",
			job.Duration(idle), maxNodes, way, way, job.Duration(providerBoot)), 0o600),
		os.WriteFile(filepath.Join(l.folder, "offers.yaml"), fmt.Appendf(nil,
			"providers:\n  - provider: lab\n    boot: %s\n    types:\n"+
				"      - {type: t4, gpu: T4, gpu_memory: 16GB, gpus: 1, cpus: 4, memory: 8GB, hourly: %s}\n",
			job.Duration(p.boot.Round(100*time.Millisecond)), rent), 0o600),
	)
}

const (
	idle     = 5 * time.Second // after which a provisioned node is released
	maxNodes = 3
)

// close ends all processes of the yard.
func (l *live) close() error {
	if l.client != nil {
		l.client.Close()
	}

	return yardtest.KillAll(l.folder)
}

// command is how the program of a stream is started.
func (l *live) command(s *stream) string {
	if s.saves {
		return l.python + " -I -S " + filepath.Join(l.folder, saverFile)
	}

	return "python3 " + filepath.Join(l.folder, trainerFile)
}

// submit submits one job.
func (l *live) submit(ctx context.Context, s *stream, p *probe, t *task) (id.Job, error) {
	text := t.file(s, p, l.command(s), time.Now())
	reply, err := l.client.Submit(ctx, api.SubmitRequest{File: text}, "")
	if err != nil {
		return "", fmt.Errorf("submit %s: %w\n%s", t.name, err, text)
	}

	return reply.Jobs[0].ID, nil
}

// finish waits until the jobs have ended, and returns them.
func (l *live) finish(ctx context.Context, jobs []id.Job) ([]api.JobDetail, error) {
	all := make([]api.JobDetail, 0, len(jobs))

	for _, j := range jobs {
		for {
			d, err := l.client.Job(ctx, j)
			if err != nil {
				return nil, err
			}

			if d.State.Final() {
				if d.State != job.Succeeded {
					return nil, fmt.Errorf("%s (%s) ended as %s: %s", d.Name, d.ID, d.Status, d.Reason)
				}

				all = append(all, d)

				break
			}

			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("wait for %s (%s, %s): %w", d.Name, d.State, d.Reason, ctx.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
	}

	return all, nil
}

// runLive submits a stream to a real yard and measures it.
func runLive(ctx context.Context, binary, parent, policy string, s *stream, p *probe) (out *outcome, err error) {
	l, err := open(ctx, binary, parent, policy, s, p)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, l.close()) }()

	began := time.Now()
	jobs := make([]id.Job, 0, len(s.tasks))

	for i := range s.tasks {
		t := &s.tasks[i]
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(began.Add(t.at))):
		}

		j, err := l.submit(ctx, s, p, t)
		if err != nil {
			return nil, err
		}

		jobs = append(jobs, j)
	}

	ended, err := l.finish(ctx, jobs)
	if err != nil {
		return nil, err
	}

	if err := l.release(ctx); err != nil {
		return nil, err
	}

	return l.measure(ctx, began, ended)
}

// release waits until every machine is known to have ended: until then its last stretch is an estimate.
func (l *live) release(ctx context.Context) error {
	for {
		page, err := l.client.Leases(ctx, api.LeaseFilter{Live: true})
		if err != nil || len(page.Leases) == 0 {
			return err
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the release of %s: %w", page.Leases[0].ID, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// measure reads what the jobs came to, from the yard's own records.
func (l *live) measure(ctx context.Context, began time.Time, ended []api.JobDetail) (*outcome, error) {
	o := &outcome{}
	var took []float64
	last := began

	for i := range ended {
		d := &ended[i]
		took = append(took, d.Ended.Sub(d.Submitted).Seconds())
		o.completion += took[i] / float64(len(ended))
		o.stops += d.Epoch - 1

		m := movementOf(d.Runs)
		o.moves += m.moves
		o.resizes += m.resizes

		if d.Deadline != nil {
			o.lateness += max(d.Ended.Sub(*d.Deadline).Seconds(), 0)
		}

		if d.Ended.After(last) {
			last = *d.Ended
		}
	}

	slices.Sort(took)
	o.p95 = quantile.NearestRank(took, 0.95)
	o.makespan = last.Sub(began).Seconds()

	report, err := l.client.UsageReport(ctx, api.UsageQuery{To: last})
	if err != nil {
		return nil, err
	}

	o.cost, o.energyCost = report.Total.Cost, report.Total.EnergyCost

	leases, err := l.client.Leases(ctx, api.LeaseFilter{})
	if err != nil {
		return nil, err
	}

	o.nodes = len(leases.Leases)

	o.suspended, err = l.suspensions(ctx)
	o.stops += o.suspended

	return o, err
}

// suspensions counts how often a run was suspended in place.
func (l *live) suspensions(ctx context.Context) (int, error) {
	count := 0
	filter := api.EventFilter{Kind: "run.suspended"}

	for {
		page, err := l.client.Events(ctx, filter)
		if err != nil {
			return 0, err
		}

		count += len(page.Events)
		if page.Next == "" || len(page.Events) == 0 {
			return count, nil
		}

		filter.Cursor = page.Next
	}
}

// suspends reports whether the team's own nodes can suspend programs in place.
func (l *live) suspends(ctx context.Context) (bool, error) {
	page, err := l.client.Nodes(ctx, api.Page{})
	if err != nil {
		return false, err
	}

	cannot := func(n api.Node) bool { return n.Snapshots == nil || !n.Snapshots.Suspend.OK }

	return !slices.ContainsFunc(page.Nodes, cannot), nil
}

// Of a probe: how often each figure is measured, of which the median counts, the seconds that a job sleeps and the
// steps of a training.
const (
	probeSamples = 5
	probeSleeps  = 0.5
	probeSteps   = 60
)

// measureProbe runs a few jobs one after the other on an otherwise empty yard, and then, if a stream has trainings, as
// many of them at once as it has nodes.
func measureProbe(ctx context.Context, binary, parent string, samples int, trains bool) (p *probe, err error) {
	s := &stream{name: "probe", machines: trainingNodes(trainers), cloud: true}
	p = &probe{boot: providerBoot, stepsRate: 1}

	l, err := open(ctx, binary, parent, "rules:time=3000", s, p)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, l.close()) }()

	sleeps, err := l.median(ctx, s, p, samples, task{name: "sleep", work: probeSleeps})
	if err != nil {
		return nil, err
	}

	p.overhead = sleeps - job.Seconds(probeSleeps)

	if trains {
		if err := l.probeTrainings(ctx, s, p, samples); err != nil {
			return nil, err
		}
	}

	if err := l.probeMoves(ctx, s, p, samples); err != nil {
		return nil, err
	}

	p.suspends, err = l.suspends(ctx)
	if err != nil {
		return nil, err
	}

	return p, l.probeBoot(ctx, s, p)
}

// probeTrainings measures trainings alone and at once.
func (l *live) probeTrainings(ctx context.Context, s *stream, p *probe, samples int) error {
	s.trains = true
	defer func() { s.trains = false }()

	alone, err := l.probeTraining(ctx, s, p, samples)
	if err != nil {
		return err
	}

	var together []time.Duration
	for range samples {
		tasks := make([]task, trainers)
		for i := range tasks {
			tasks[i] = task{name: fmt.Sprintf("train-together-%d", i), work: probeSteps}
		}

		took, err := l.together(ctx, s, p, tasks)
		if err != nil {
			return err
		}

		together = append(together, slices.Max(took))
	}

	slices.Sort(together)
	p.slowdown = float64(together[samples/2]-alone) / float64(alone)

	return nil
}

// probeBoot measures how long a machine of the cloud takes until it has joined.
func (l *live) probeBoot(ctx context.Context, s *stream, p *probe) error {
	t := task{name: "cloud", work: probeSleeps, gpus: 1, objective: job.ObjectiveTime, place: job.PlaceCloud}

	j, err := l.submit(ctx, s, p, &t)
	if err != nil {
		return err
	}
	if _, err := l.finish(ctx, []id.Job{j}); err != nil {
		return err
	}

	leases, err := l.client.Leases(ctx, api.LeaseFilter{Job: j})
	if err != nil {
		return err
	}
	if len(leases.Leases) != 1 || leases.Leases[0].Joined == nil {
		return fmt.Errorf("the probe of the cloud has %d leases that joined, want 1", len(leases.Leases))
	}

	p.boot = leases.Leases[0].Joined.Sub(leases.Leases[0].Requested)

	return nil
}

// probeTraining runs a training several times, alone: how fast it says that it was, and how long it needs beyond that
// to start. It returns how long it took.
func (l *live) probeTraining(ctx context.Context, s *stream, p *probe, samples int) (time.Duration, error) {
	var took []time.Duration
	var rates []float64

	for range samples {
		done, err := l.atOnce(ctx, s, p, []task{{name: "train", work: probeSteps}})
		if err != nil {
			return 0, err
		}

		rate, err := l.rateOf(ctx, done[0].ID)
		if err != nil {
			return 0, err
		}

		took, rates = append(took, done[0].Ended.Sub(done[0].Submitted)), append(rates, rate)
	}

	slices.Sort(took)
	slices.Sort(rates)

	p.stepsRate = rates[samples/2]
	p.startup = max(took[samples/2]-p.overhead-job.Seconds(probeSteps/p.stepsRate), 0)

	return took[samples/2], nil
}

// rateOf returns how many steps in a second a training says that it did.
func (l *live) rateOf(ctx context.Context, j id.Job) (float64, error) {
	page, err := l.client.Logs(ctx, j, api.LogFilter{Stream: logs.Stdout.String(), Tail: 1})
	if err != nil {
		return 0, err
	}

	if len(page.Lines) != 1 {
		return 0, fmt.Errorf("job %s has %d last lines, want 1", j, len(page.Lines))
	}

	rate, err := strconv.ParseFloat(page.Lines[0].Text, 64)
	if err != nil || rate <= 0 {
		return 0, fmt.Errorf("job %s does not say how fast it was: %q", j, page.Lines[0].Text)
	}

	return rate, nil
}

// median runs a job several times, alone, and returns the median of how long it took from submission to end.
func (l *live) median(ctx context.Context, s *stream, p *probe, samples int, t task) (time.Duration, error) {
	var all []time.Duration
	for range samples {
		took, err := l.together(ctx, s, p, []task{t})
		if err != nil {
			return 0, err
		}

		all = append(all, took[0])
	}

	slices.Sort(all)

	return all[samples/2], nil
}

// together runs jobs at once on nodes of the team's own, and returns how long each took.
func (l *live) together(ctx context.Context, s *stream, p *probe, tasks []task) ([]time.Duration, error) {
	done, err := l.atOnce(ctx, s, p, tasks)
	if err != nil {
		return nil, err
	}

	took := make([]time.Duration, len(done))
	for i := range done {
		took[i] = done[i].Ended.Sub(done[i].Submitted)
	}

	return took, nil
}

// atOnce runs jobs at once on nodes of the team's own, to their ends.
func (l *live) atOnce(ctx context.Context, s *stream, p *probe, tasks []task) ([]api.JobDetail, error) {
	jobs := make([]id.Job, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		t.gpus, t.objective, t.place = 1, job.ObjectiveTime, job.PlaceLocal

		var err error
		jobs[i], err = l.submit(ctx, s, p, t)
		if err != nil {
			return nil, err
		}
	}

	return l.finish(ctx, jobs)
}

// recalibrated runs the training of the probe again, and returns the probe with the speed that it has now.
func recalibrated(ctx context.Context, binary, parent string, p *probe, samples int) (now *probe, err error) {
	s := &stream{name: "again", machines: trainingNodes(1), trains: true}

	l, err := open(ctx, binary, parent, "fifo", s, p)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, l.close()) }()

	again := *p
	_, err = l.probeTraining(ctx, s, &again, samples)

	return &again, err
}
