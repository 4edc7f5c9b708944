package burst

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"trainyard/internal/sim/trace/rows"
)

// task is a job of the trace. Its arrival counts from the window's start.
type task struct {
	name     string
	arrives  time.Duration
	duration time.Duration
	at, run  float64 // the same in hours
	gpus     int
	owner    string
}

func newTask(number int, arrives, lasts time.Duration, gpus int, owner string) task {
	return task{
		name:     fmt.Sprintf("philly-%d", number),
		arrives:  arrives,
		duration: lasts,
		at:       arrives.Hours(),
		run:      lasts.Hours(),
		gpus:     gpus,
		owner:    owner,
	}
}

// cost is what the task costs in the cloud: GPU-hours, at one a GPU-hour money too.
func (t *task) cost() float64 { return t.run * float64(t.gpus) }

// window is a stretch of the trace on a cluster of its own.
type window struct {
	name     string
	from, to string // dates; to is left out
	nodes    int    // of eight GPUs
	tasks    []task
	before   []ended // when it begins
}

const (
	perNode    = 8
	mostGPUs   = 256 // jobs with more are left out, as in the reference runs
	phillyFile = "philly/philly_jobs.csv.gz"
	calendar   = "2006-01-02 15:04:05"
)

// row is a line of the file.
type row struct {
	at       time.Duration // since 1970
	duration time.Duration
	gpus     int
	owner    string
}

// load reads the file, in order of submission. Its error is fs.ErrNotExist if it is not there.
func load(folder string) ([]row, error) {
	list, err := rows.All(filepath.Join(folder, phillyFile), func(f *rows.File) ([]row, error) {
		t, err := rows.WithHeader(f, ',', "timestamp", "duration", "num_gpus", "cluster")
		if err != nil {
			return nil, err
		}

		var list []row
		err = t.Each(func() {
			r := row{
				at:       t.Wall("timestamp", calendar),
				duration: t.Seconds("duration"),
				gpus:     t.Count("num_gpus"),
				owner:    t.Text("cluster"),
			}

			list = append(list, r)
		})

		return list, err
	})
	if err != nil {
		return nil, err
	}

	slices.SortStableFunc(list, func(a, b row) int { return cmp.Compare(a.at, b.at) })

	return list, nil
}

// Arrival is a job of the trace, for benchmarks of other things on the same stretches.
type Arrival struct {
	Name         string
	At, Duration time.Duration
	GPUs         int
	Owner        string
}

// Stretch reads the jobs that arrived from a date on and before another. Its error is fs.ErrNotExist if the trace
// is not there.
func Stretch(folder, from, to string) ([]Arrival, error) {
	list, err := load(folder)
	if err != nil {
		return nil, err
	}

	w := &window{from: from, to: to}
	if err := w.cut(list); err != nil {
		return nil, err
	}

	jobs := make([]Arrival, len(w.tasks))
	for i := range w.tasks {
		t := &w.tasks[i]
		jobs[i] = Arrival{t.name, t.arrives, t.duration, t.gpus, t.owner}
	}

	return jobs, nil
}

// cut takes the tasks of a window.
func (w *window) cut(list []row) error {
	from, err := time.Parse(time.DateOnly, w.from)
	if err != nil {
		return err
	}

	to, err := time.Parse(time.DateOnly, w.to)
	if err != nil {
		return err
	}

	begin, end := from.Sub(time.Unix(0, 0)), to.Sub(time.Unix(0, 0))

	w.remember(list, begin)

	w.tasks = nil
	for _, r := range list {
		if r.at < begin || r.at >= end || r.gpus > mostGPUs {
			continue
		}

		w.tasks = append(w.tasks, newTask(len(w.tasks), r.at-begin, r.duration, r.gpus, r.owner))
	}

	return nil
}

// last is the last arrival.
func (w *window) last() float64 { return w.tasks[len(w.tasks)-1].at }

// work is what all tasks cost in the cloud.
func work(tasks []task) float64 {
	sum := 0.0
	for i := range tasks {
		sum += tasks[i].cost()
	}

	return sum
}
