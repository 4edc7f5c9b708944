package main

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
)

// sample is a whole curve whose end is known.
type sample struct {
	history.Past
	source string // where it comes from
	name   string // of the run
	// runs with the same are not shown to it as history, besides those of its group; "" if there are none
	excludedSystem string
	directionKnown bool        // its index says whether it rises or falls
	whole          curve.Curve // the curve beyond its end, for runs that went on; its Total is where the program ended
}

// sources are the public places that curves come from, in the order of the table. Nothing was
// chosen on those that do not count as all.
var sources = []string{"nanogpt", "mlperf", "pollux", "morphling", "mlperf_other", "nanogpt_train"}

// readAll reads every source that is there. Those that are not are named in left.
func readAll(dir string) (list []sample, left []string, err error) {
	for _, read := range []func(dir string) ([]sample, error){readNanoGPT, readNanoTrain, readMLPerf, readPollux,
		readMorphling} {
		got, err := read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			left = append(left, fmt.Sprintf("left out: %v", err))
			continue
		}

		if err != nil {
			return nil, nil, err
		}

		for i := range got {
			got[i].Job = id.Job(got[i].source + "/" + got[i].name)
		}

		list = append(list, got...)
	}

	return list, left, nil
}

// table calls row for each line of a CSV file, which may be compressed. The columns are found by name.
func table(path string, columns []string, row func(cells []string) error) (err error) {
	file, err := os.Open(path) //nolint:gosec // who runs the benchmark names the folder
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, file.Close()) }()

	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		in, err = gzip.NewReader(file)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}

	r := csv.NewReader(in)
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	at := make([]int, len(columns))
	for i, want := range columns {
		at[i] = -1
		for k, name := range head {
			if strings.TrimSpace(name) == strings.TrimSuffix(want, "?") {
				at[i] = k
			}
		}

		if at[i] < 0 && !strings.HasSuffix(want, "?") {
			return fmt.Errorf("%s: there is no column %q", path, want)
		}
	}

	cells := make([]string, len(columns))

	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}

		for i, k := range at {
			cells[i] = ""
			if k >= 0 {
				cells[i] = strings.TrimSpace(record[k])
			}
		}

		if err := row(cells); err != nil {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
	}
}

// find returns the files of a pattern; none is an error.
func find(pattern string) ([]string, error) {
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: %w", pattern, fs.ErrNotExist)
	}

	return files, err
}

// number reads a number; nothing is 0.
func number(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}

	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", text)
	}

	return v, nil
}

// finish cuts a curve where its goal is first met and notes that as its end. It reports whether it is.
func (s *sample) finish() bool {
	for i, y := range s.Curve.Y {
		if s.Curve.Goal.Met(y) {
			s.whole = s.Curve
			s.whole.Total = s.Curve.X[len(s.Curve.X)-1]
			s.Curve.X, s.Curve.Y, s.End = s.Curve.X[:i+1], s.Curve.Y[:i+1], s.Curve.X[i]
			s.Features.Target = s.Curve.Goal.Value

			return true
		}
	}

	return false
}

// add appends a point if it is a number and in order.
func (s *sample) add(x, y float64) {
	if math.IsNaN(y) || math.IsInf(y, 0) || math.IsInf(x, 0) {
		return
	}

	if n := len(s.Curve.X); x > 0 && (n == 0 || x > s.Curve.X[n-1]) {
		s.Curve.X = append(s.Curve.X, x)
		s.Curve.Y = append(s.Curve.Y, y)
	}
}

// near returns the goal that is within 2 % of the curve's best.
func near(c curve.Curve, rising bool) curve.Goal {
	best := c.Y[0]
	for _, y := range c.Y {
		if rising {
			best = max(best, y)
		} else {
			best = min(best, y)
		}
	}

	if rising {
		return curve.Goal{Value: best - 0.02*best, Rising: true, Set: true}
	}

	return curve.Goal{Value: best + 0.02*best, Set: true}
}

// readNanoGPT reads validation curves of language models. The goal is the run's own final
// loss. Runs of one record folder are one family, whatever lies below it.
func readNanoGPT(dir string) ([]sample, error) {
	return nano(dir, "nanogpt", "nanogpt_val.csv.gz", "val_loss", 0)
}

// readNanoTrain reads the training loss of some of the same runs, as means over 25 steps.
func readNanoTrain(dir string) ([]sample, error) {
	return nano(dir, "nanogpt_train", "nanogpt_train.csv.gz", "train_loss", 25)
}

func nano(dir, source, file, metric string, window int) ([]sample, error) {
	dir = filepath.Join(dir, "loss-curves")
	record := map[string]string{}

	err := table(filepath.Join(dir, "nanogpt_index.csv"), []string{"curve", "record"}, func(cells []string) error {
		record[cells[0]] = cells[1]
		return nil
	})
	if err != nil {
		return nil, err
	}

	var names []string
	runs := map[string]*sample{}

	err = table(filepath.Join(dir, file), []string{"curve", "step", metric}, func(cells []string) error {
		name := cells[0]
		x, err := number(cells[1])
		if err != nil {
			return err
		}

		y, err := number(cells[2])
		if err != nil {
			return err
		}

		if runs[name] == nil {
			names = append(names, name)
			runs[name] = &sample{source: source, name: name}
		}

		runs[name].add(x, y)

		return nil
	})
	if err != nil {
		return nil, err
	}

	var list []sample

	for _, name := range names {
		s := runs[name]
		s.Curve = means(s.Curve, window)
		if len(s.Curve.Y) == 0 {
			continue
		}

		folder := strings.Split(record[name], "/")
		s.Group = strings.Join(folder[:min(3, len(folder))], "/")
		if s.Group == "track_3/results" {
			s.Group += "/" + name // entries that lie beside the folders, not in one
		}

		s.Features = history.Features{
			Name:      "nanogpt " + folder[0],
			Task:      "language",
			Model:     "gpt2 " + folder[0],
			Framework: "pytorch",
			Metric:    metric,
		}

		s.Curve.Goal = curve.Goal{Value: s.Curve.Y[len(s.Curve.Y)-1], Set: true}
		if s.finish() {
			list = append(list, *s)
		}
	}

	return list, nil
}

// means returns a curve of means over so many points each.
func means(c curve.Curve, window int) curve.Curve {
	if window < 2 {
		return c
	}

	var out curve.Curve
	for at := 0; at+window <= len(c.X); at += window {
		var sum float64
		for _, y := range c.Y[at : at+window] {
			sum += y
		}

		out.X = append(out.X, c.X[at+window-1])
		out.Y = append(out.Y, sum/float64(window))
	}

	return out
}

// readPollux reads validation curves of six models at several batch sizes, over progress in
// units of the base batch. History is the model's other batch sizes: each run is a group of its own.
func readPollux(dir string) ([]sample, error) {
	files, err := find(filepath.Join(dir, "pollux", "traces", "*", "validation-*.csv"))
	if err != nil {
		return nil, err
	}

	var list []sample

	for _, file := range files {
		model := filepath.Base(filepath.Dir(file))
		batch, err := number(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "validation-"), ".csv"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}

		s := sample{source: "pollux", name: fmt.Sprintf("%s-%v", model, batch)}
		s.Group = s.name
		s.Features = history.Features{Name: model, Task: model, Model: model, Metric: "validation", Batch: batch}

		err = table(file, []string{"progress", "metric"}, func(cells []string) error {
			x, err := number(cells[0])
			if err != nil {
				return err
			}

			y, err := number(cells[1])
			s.add(x, y)

			return err
		})
		if err != nil {
			return nil, err
		}

		s.Curve.Goal = near(s.Curve, model != "deepspeech2" && model != "yolov3") // those two measure an error
		if s.finish() {
			list = append(list, s)
		}
	}

	return list, nil
}

// readMorphling reads training loss of one large model under several parallel plans, as
// means over 25 steps.
func readMorphling(dir string) ([]sample, error) {
	files, err := find(filepath.Join(dir, "morphling", "loss", "*.csv.gz"))
	if err != nil {
		return nil, err
	}

	var list []sample

	for _, file := range files {
		s := sample{source: "morphling", name: strings.TrimSuffix(filepath.Base(file), ".csv.gz")}
		s.Group = s.name
		s.Features = history.Features{Name: "llama7b", Task: "language", Model: "llama7b", Metric: "lm_loss"}

		err := table(file, []string{"consumed_samples", "lm_loss"}, func(cells []string) error {
			x, err := number(cells[0])
			if err != nil {
				return err
			}

			y, err := number(cells[1])
			s.add(x, y)

			return err
		})
		if err != nil {
			return nil, err
		}

		s.Curve = means(s.Curve, 25)
		s.Curve.Goal = near(s.Curve, false)
		if s.finish() {
			list = append(list, s)
		}
	}

	return list, nil
}
