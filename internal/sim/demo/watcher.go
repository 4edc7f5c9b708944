package demo

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
	"trainyard/internal/logs/archive"
	"trainyard/internal/sim"
	"trainyard/internal/yardmaster"
)

// Intake is where agents would send what they see of runs.
type Intake interface {
	TakeMetrics(ctx context.Context, r *api.MetricsReport) error
	TakeUse(ctx context.Context, n id.Node, ranks []api.RankReport, orders []yardmaster.Order)
}

// watcher sees what an agent would see of runs: metrics, output, checkpoints, use.
type watcher struct {
	ctx    context.Context //nolint:containedctx // of the simulation, which calls it back
	intake Intake
	logs   *archive.Archive
	log    *slog.Logger
	// keeps says whether the output of a run that has ended is kept; output of a run is written when it ends, or at once
	// with live.
	keeps func(w *sim.Watched) bool
	live  bool
	runs  map[id.Run]*sight
}

// sight is what was seen of a run.
type sight struct {
	logged float64 // step up to which its metrics and lines were sent
	saved  time.Time
	output bytes.Buffer // that was not written yet
	writer *logs.Writer
	offset int64 // of output that was written
	last   sim.Watched
}

// see sends what is new of a run.
func (w *watcher) see(h sim.Hand, seen *sim.Watched) {
	s, known := w.runs[seen.Run]
	if !known {
		s = w.first(seen)
		w.runs[seen.Run] = s
	}

	s.last = *seen
	w.measure(s, seen)
	w.use(seen)

	if w.live && !seen.Ended {
		h.Progress(seen.Run, seen.Done, courseOf(seen.Job).steps)
	}

	if !seen.Ended && (seen.Save || w.saveDue(s, seen)) {
		w.save(h, s, seen)
	}

	if w.live || seen.Ended && w.keeps(seen) {
		w.write(s, seen)
	}

	if seen.Ended {
		delete(w.runs, seen.Run)
	}
}

// first begins with a run.
func (w *watcher) first(seen *sim.Watched) *sight {
	s := &sight{logged: seen.Done, saved: seen.Now}
	s.writer = logs.NewWriter(&s.output, 0)

	if w.live {
		state, err := w.logs.State(w.ctx, logOf(seen))
		if err != nil {
			w.warn("cannot find the output of a run", err)
		}

		s.offset = state.Size
	}

	if s.offset == 0 {
		w.print(s, seen.Started, "config %s, %d GPUs on %s", seen.Job.Name, gpusOf(seen), seen.Ranks[0].Node)

		if seen.Done > 0 {
			w.print(s, seen.Now, "resumed from checkpoint at step %.0f", seen.Done)
		}
	}

	return s
}

func logOf(seen *sim.Watched) archive.Log { return archive.Log{Run: seen.Run, UID: seen.UID} }

func gpusOf(seen *sim.Watched) (n int) {
	for _, a := range seen.Ranks {
		n += len(fleet.Indices(a.GPUs))
	}

	return n
}

// perJob is how many points the curve of a job has when it has done all its work.
const perJob = 400

// measure sends the metrics of the steps since the last time, and prints a line for each.
func (w *watcher) measure(s *sight, seen *sim.Watched) {
	c := courseOf(seen.Job)
	report := api.RunMetrics{Run: seen.Run, UID: seen.UID, Done: &seen.Done, Total: &c.steps}
	series := make([]api.SeriesPoints, len(c.metrics))

	for i := range c.metrics {
		series[i] = api.SeriesPoints{Name: c.metrics[i].name, Source: "output"}
	}

	every := math.Max(math.Ceil(c.steps/perJob), 1)
	for step := (math.Floor(s.logged/every) + 1) * every; step <= seen.Done; step += every {
		at := seen.Now.Add(-job.Seconds((seen.Done - step) / math.Max(seen.Rate, 1e-9)))
		line := fmt.Sprintf("step=%.0f", step)

		for i := range c.metrics {
			m := &c.metrics[i]
			if m.rarely && math.Mod(step/every, 5) != 0 {
				continue
			}

			value := m.at(step)
			line += fmt.Sprintf(" %s=%.4g", m.name, value)
			series[i].Points = append(series[i].Points, api.MetricPoint{
				Step: step, At: float64(at.UnixNano()) / 1e9, Value: &value,
			})
		}

		w.print(s, at, "%s", line)
		s.logged = step
	}

	report.Series = slices.DeleteFunc(series, func(p api.SeriesPoints) bool { return len(p.Points) == 0 })

	if err := w.intake.TakeMetrics(w.ctx, &api.MetricsReport{Runs: []api.RunMetrics{report}}); err != nil {
		w.warn("metrics were not taken", err)
	}
}

// use sends what the ranks use of their nodes.
func (w *watcher) use(seen *sim.Watched) {
	r := recipeOf(seen.Job.Spec)
	if r == nil {
		r = &recipe{busy: 0.8, memory: 8 * gb}
	}

	elapsed := seen.Now.Sub(seen.Started).Seconds()
	need := seen.Job.Spec.Resources

	for rank, a := range seen.Ranks {
		wobble := share(fmt.Sprint(seen.Run, rank, seen.Now.Unix())) - 0.5
		cpus := cmp.Or(float64(need.CPUs)/1000, 1)
		memory := int64(float64(cmp.Or(need.Memory, 16*gb)) * (0.48 + 0.04*wobble))
		u := &job.Use{
			At: seen.Now, CPUSeconds: 0.62 * cpus * elapsed, Memory: memory, MemoryPeak: memory,
			Read: int64(40e6 * elapsed), Written: int64(2e6 * elapsed),
			Received: int64(3e6 * elapsed), Sent: int64(1e6 * elapsed),
		}

		for _, g := range fleet.Indices(a.GPUs) {
			u.GPUs = append(u.GPUs, job.GPUUse{
				Index: g, Busy: math.Max(0, math.Min(r.busy+0.1*wobble, 1)), Memory: int64(r.memory),
			})
		}

		state := job.RunRunning
		if seen.Ended {
			state = job.RunEnded
		}

		w.intake.TakeUse(w.ctx, a.Node, []api.RankReport{{Run: seen.Run, UID: seen.UID, Rank: rank, State: state, Use: u}},
			[]yardmaster.Order{{Run: seen.Run, Rank: rank}})
	}
}

// saveDue reports whether the program saves a checkpoint now.
func (w *watcher) saveDue(s *sight, seen *sim.Watched) bool {
	c := seen.Job.Spec.Checkpoint

	return c != nil && c.Every > 0 && seen.Done > 0 && seen.Now.Sub(s.saved) >= time.Duration(c.Every)
}

// save enters a checkpoint in the catalogue. It lies on the shared file system, where no server looks for it.
func (w *watcher) save(h sim.Hand, s *sight, seen *sim.Watched) {
	s.saved = seen.Now
	name := fmt.Sprintf("step-%.0f", seen.Done)
	c := courseOf(seen.Job)

	entry := checkpoint.Checkpoint{
		Run: seen.Run, UID: seen.UID, Name: name, Step: int64(seen.Done), Found: checkpoint.ByMarker, Written: seen.Now,
		Framework: seen.Job.Spec.Framework, World: gpusOf(seen), Ranks: 1,
		Parts: []checkpoint.Part{{
			Node: seen.Ranks[0].Node, Shared: shared, Path: string(seen.ID) + "/" + name,
			Size: max(seen.Job.CheckpointSize, gb/100),
		}},
	}

	if len(c.metrics) > 1 {
		entry.Metric, entry.Value = c.metrics[1].name, c.metrics[1].at(seen.Done)
	}

	w.print(s, seen.Now, "saved checkpoint %s", name)
	h.Do(yardmaster.AddCheckpoint{Checkpoint: entry})
}

// print adds a line to the output of a run.
func (w *watcher) print(s *sight, at time.Time, format string, args ...any) {
	if err := s.writer.Write(logs.Stdout, at, fmt.Appendf(nil, format+"\n", args...)); err != nil {
		w.warn("output was not written", err)
	}
}

// complain adds a line to the errors of a run.
func (w *watcher) complain(s *sight, at time.Time, text string) {
	if err := s.writer.Write(logs.Stderr, at, []byte(text)); err != nil {
		w.warn("output was not written", err)
	}
}

// endings are the last words of programs.
var endings = map[job.Cause]string{ //nolint:exhaustive // the others leave none
	job.CauseUserCode: "Traceback (most recent call last):\n  File \"train.py\", line 214, in <module>\n    main(args)\n" +
		"  File \"train.py\", line 171, in main\n    loss.backward()\n" +
		"RuntimeError: The size of tensor a (512) must match the size of tensor b (384) at non-singleton dimension 1\n",
	job.CauseGPUOOM: "Traceback (most recent call last):\n  File \"train.py\", line 214, in <module>\n    main(args)\n" +
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB\n",
	job.CausePreempted: "received SIGTERM, saving a checkpoint\n",
	job.CauseNone:      "done\n",
}

// write hands the output of a run to the archive.
func (w *watcher) write(s *sight, seen *sim.Watched) {
	if seen.Ended {
		w.complain(s, seen.Now, endings[seen.Cause])

		if err := s.writer.Close(seen.Now); err != nil {
			w.warn("output was not written", err)
		}
	}

	if s.output.Len() == 0 && !seen.Ended {
		return
	}

	size, _, err := w.logs.Append(w.ctx, logOf(seen), s.offset, s.output.Bytes(), seen.Ended)
	if err != nil {
		w.warn("output was not stored", err)
		return
	}

	s.offset = size
	s.output.Reset()
}

// flush writes what runs that have not ended have printed.
func (w *watcher) flush() {
	for _, s := range w.runs {
		w.write(s, &s.last)
	}
}

func (w *watcher) warn(text string, err error) {
	if w.ctx.Err() == nil {
		w.log.WarnContext(w.ctx, "the demo misses something", "what", text, "error", err)
	}
}
