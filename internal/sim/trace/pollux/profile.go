package pollux

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/sim/trace/rows"
)

// Profile is what was measured of an application: how long a step takes on which
// GPUs with which batch, and how training goes with which batch.
type Profile struct {
	Name    string
	trained []training // by batch size, the base first
	Epochs  int        // rows that all trainings have
	kinds   []*stepTimes
	Restart time.Duration // what a change of GPUs costs, as published
	slow    float64       // how many times as long as measured a unit takes, as published
}

// training is one real training with a batch size, by epoch. Progress counts in
// steps of the base batch: a larger batch makes more in a step, but less than in
// proportion.
type training struct {
	batch         float64
	progress      []float64 // at the end of the epoch
	sqr, variance []float64 // of the gradient
}

// stepTimes are the measured steps on one kind of GPU.
type stepTimes struct {
	kind               string
	perNode            int     // GPUs of a node
	minLocal, maxLocal float64 // samples of one GPU in a step
	at                 map[shape][]stepTime
	shapes             []shape // that were measured, in order
}

// shape is how many GPUs on how many nodes.
type shape struct{ nodes, gpus int }

// stepTime is how long a step takes, and how much of that the GPUs wait for each other.
type stepTime struct{ local, step, sync float64 }

// measuredOn names the GPU behind the suffix of a file of profiles. Files without
// a suffix are from the same machines as "aws".
var measuredOn = map[string]string{
	"": "T4", "aws": "T4", "dgx-ext": "A100", "dgx": "A100", "rtx": "RTX2080Ti", "azure": "V100", "quad": "RTX6000",
}

// localMost are bounds on the samples of one GPU in a step that the simulators
// set below what was measured, by application and suffix.
var localMost = map[[2]string]float64{{"yolov3", ""}: 8, {"deepspeech2", "rtx"}: 57}

// Read reads the files of an application in folders. The first that has a
// kind of GPU counts, and the first that has trainings.
func Read(app string, folders []string) (*Profile, error) {
	p := &Profile{Name: app, Restart: polluxRestart, slow: 1}

	if strings.ContainsAny(app, `/\*?[`) || app == "" || app == "." || app == ".." {
		return nil, fault.New(fault.Invalid, "bad_tables", "invalid application name %q", rows.Short(app))
	}

	for _, folder := range folders {
		if err := p.read(filepath.Join(folder, app)); err != nil {
			return nil, err
		}
	}

	if len(p.trained) == 0 || len(p.kinds) == 0 {
		return nil, fault.New(fault.NotFound, "bad_tables", "no profile of %s found in %s", app, strings.Join(folders, ", ")).
			WithRemedy("put placements*.csv and validation-*.csv into a folder of that name")
	}

	slices.SortFunc(p.trained, func(a, b training) int { return cmp.Compare(a.batch, b.batch) })
	p.Epochs = len(p.trained[0].progress)
	for _, t := range p.trained {
		p.Epochs = min(p.Epochs, len(t.progress))
	}

	if p.Epochs == 0 {
		return nil, fault.New(fault.Invalid, "bad_tables", "a training run of %s has no epochs", app)
	}

	return p, nil
}

func (p *Profile) read(folder string) error {
	runs, err := filepath.Glob(filepath.Join(folder, "validation-*.csv"))
	if err != nil {
		return err
	}

	if len(p.trained) > 0 {
		runs = nil // an earlier folder had them
	}

	for _, name := range runs {
		t, err := rows.All(name, readTraining)
		if err != nil {
			return err
		}

		p.trained = append(p.trained, t)
	}

	measured, err := filepath.Glob(filepath.Join(folder,
		"placements*.csv")) // by name: dgx-ext, with larger batches, before dgx
	if err != nil {
		return err
	}

	for _, name := range measured {
		if err := p.readSteps(folder, name); err != nil {
			return err
		}
	}

	return nil
}

// readSteps reads the steps on one kind of GPU, unless it is known already.
func (p *Profile) readSteps(folder, name string) error {
	suffix := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "placements"), ".csv"), "-")
	kind, ok := measuredOn[suffix]
	if !ok {
		kind = suffix
	}

	if slices.ContainsFunc(p.kinds, func(s *stepTimes) bool { return s.kind == kind }) {
		return nil
	}

	steps, err := rows.All(name, readPlacements)
	if err != nil {
		return err
	}

	more := filepath.Join(folder, strings.Replace(filepath.Base(name), "placements", "scalability", 1))
	wide, err := rows.All(more, readScalability)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}

	times := newStepTimes(kind, append(steps, wide...))
	if most, ok := localMost[[2]string{p.Name, suffix}]; ok {
		times.maxLocal = min(times.maxLocal, most)
	}

	if suffix != "" {
		if d, ok := restarts[p.Name]; ok {
			p.Restart = d
			p.slow = slowdowns[p.Name]
		}
	}

	p.kinds = append(p.kinds, times)

	return nil
}

func readTraining(f *rows.File) (training, error) {
	batch, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(f.Name, "validation-"), ".csv"))
	if err != nil || batch < 1 {
		return training{}, fault.New(fault.Invalid, "bad_tables", "file name %s must contain a batch size", f.Name)
	}

	t, err := rows.WithHeader(f, ',', "progress", "grad_sqr", "grad_var")
	if err != nil {
		return training{}, err
	}

	run := training{batch: float64(batch)}
	err = t.Each(func() {
		progress := t.Number("progress")
		sqr := t.Number("grad_sqr")
		variance := t.Number("grad_var")

		if n := len(run.progress); progress <= 0 || n > 0 && progress <= run.progress[n-1] {
			t.Fail("progress", "progress must increase from row to row")
		}

		if sqr < 0 || variance < 0 || sqr+variance == 0 {
			t.Fail("grad_sqr", "gradient statistics must not be negative or all zero")
		}

		run.progress = append(run.progress, progress)
		run.sqr, run.variance = append(run.sqr, sqr), append(run.variance, variance)
	})

	return run, err
}

// measured is one row of step times.
type measured struct {
	shape
	stepTime
	maxGPUs int // GPUs on the fullest node; 0 if that is not known
	minGPUs int // GPUs on the node with fewest
}

// packed reports whether all nodes but one are full.
func (m *measured) packed(perNode int) bool {
	return m.maxGPUs > 0 && m.gpus == (m.nodes-1)*perNode+m.minGPUs
}

func readPlacements(f *rows.File) ([]measured, error) {
	t, err := rows.WithHeader(f, ',', "placement", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}

	var list []measured
	err = t.Each(func() {
		m := measured{stepTime: readStep(t)}
		for _, digit := range t.Text("placement") { // "44" is four GPUs on each of two nodes
			n := int(digit - '0')
			if n < 1 || n > 9 || m.nodes >= MaxNodes {
				t.Fail("placement", "must be one digit per node, 1 to 9, got %q", rows.Short(t.Text("placement")))
				return
			}

			if m.nodes == 0 || n < m.minGPUs {
				m.minGPUs = n
			}

			m.nodes, m.gpus, m.maxGPUs = m.nodes+1, m.gpus+n, max(m.maxGPUs, n)
		}

		list = append(list, m)
	})

	return list, err
}

func readScalability(f *rows.File) ([]measured, error) {
	t, err := rows.WithHeader(f, ',', "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
	if err != nil {
		return nil, err
	}

	var list []measured
	err = t.Each(func() {
		m := measured{stepTime: readStep(t), shape: shape{t.Count("num_nodes"), t.Count("num_replicas")}}
		if m.nodes < 1 || m.gpus < m.nodes || m.gpus > job.MaxCount {
			t.Fail("num_replicas", "invalid combination of %d GPUs on %d nodes", m.gpus, m.nodes)
		}

		list = append(list, m)
	})

	return list, err
}

func readStep(t *rows.Table) stepTime {
	s := stepTime{t.Number("local_bsz"), t.Number("step_time"), t.Number("sync_time")}
	if s.local <= 0 || s.step <= 0 || s.sync < 0 {
		t.Fail("step_time", "invalid step time: %g samples in %g s", s.local, s.step)
	}

	s.sync = min(s.sync, s.step)

	return s
}

// newStepTimes puts rows in order. Of rows of the same shape, such as "24" and
// "33", the one with full nodes counts, because that is how jobs are placed; others
// are averaged.
func newStepTimes(kind string, list []measured) *stepTimes {
	s := &stepTimes{kind: kind, minLocal: math.Inf(1), at: map[shape][]stepTime{}}
	for _, m := range list {
		s.perNode = max(s.perNode, m.maxGPUs, 1)
		s.minLocal, s.maxLocal = min(s.minLocal, m.local), max(s.maxLocal, m.local)
	}

	packed := map[shape]bool{}
	for i := range list {
		packed[list[i].shape] = packed[list[i].shape] || list[i].packed(s.perNode)
	}

	for i := range list {
		m := &list[i]
		if packed[m.shape] && !m.packed(s.perNode) {
			continue
		}

		if s.at[m.shape] == nil {
			s.shapes = append(s.shapes, m.shape)
		}

		s.at[m.shape] = append(s.at[m.shape], m.stepTime)
	}

	for sh, steps := range s.at {
		s.at[sh] = averaged(steps)
	}

	slices.SortFunc(s.shapes, func(a, b shape) int { return cmp.Or(a.gpus-b.gpus, a.nodes-b.nodes) })

	return s
}

// averaged sorts step times by batch and makes one of those with the same.
func averaged(list []stepTime) []stepTime {
	slices.SortStableFunc(list, func(a, b stepTime) int { return cmp.Compare(a.local, b.local) })
	var out []stepTime
	for i := 0; i < len(list); {
		n, sum := 0, stepTime{local: list[i].local}
		for ; i < len(list) && list[i].local == sum.local; i++ {
			sum.step, sum.sync, n = sum.step+list[i].step, sum.sync+list[i].sync, n+1
		}

		out = append(out, stepTime{sum.local, sum.step / float64(n), sum.sync / float64(n)})
	}

	return out
}

// MaxNodes is the greatest number of nodes of a job in both simulators.
const MaxNodes = 16

// restarts is what a change of GPUs costs an application, as measured for Sia.
var restarts = map[string]time.Duration{
	"bert": 120 * time.Second, "cifar10": 50 * time.Second, "deepspeech2": 25 * time.Second,
	"imagenet": 250 * time.Second, "ncf": 15 * time.Second, "yolov3": 80 * time.Second,
}

// slowdowns is how many times as long as in the measurements a unit of work of an application
// took on real clusters, by which Sia's simulator slows all jobs down. That of Pollux does not.
var slowdowns = map[string]float64{
	"bert": 1.2, "cifar10": 1.8, "deepspeech2": 1.2, "imagenet": 1.2, "ncf": 1.5, "yolov3": 1.2,
}

// polluxRestart is what any change of GPUs costs in the Pollux simulator.
const polluxRestart = 30 * time.Second
