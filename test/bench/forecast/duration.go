package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/importer"
)

// durationFolds is into how many parts organisations are dealt for durations.
const durationFolds = 4

// durationPrediction is how long a job was said to take before its first point.
type durationPrediction struct {
	relativeError float64 // relative
	covered       bool
	refused       bool
}

// reportDurations measures what is said of the whole duration of MLPerf runs before they begin, by models
// that have learned from other organisations.
func reportDurations(w io.Writer, dir string, figures map[string]float64) error {
	past, err := readDurations(filepath.Join(dir, "mlperf-training", "runs.csv.gz"))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(w, "durations are left out: %v\n", err)
		return err
	}

	if err != nil {
		return err
	}

	list, err := durations(past)
	if err != nil {
		return err
	}

	var errs []float64

	var covered, refused int
	for _, g := range list {
		switch {
		case g.refused:
			refused++
			continue
		case g.covered:
			covered++
		}

		errs = append(errs, 100*g.relativeError)
	}

	figures["duration_err"], figures["duration_err_p80"] = quantileOf(errs, 0.5), quantileOf(errs, 0.8)
	figures["duration_refused_pct"] = 100 * float64(refused) / float64(len(list))
	figures["duration_coverage80"] = 100 * float64(covered) / float64(max(len(errs), 1))
	_, err = fmt.Fprintf(
		w,
		"Duration before the first point, %d configurations of organisations not seen: error %.1f %% (80th percentile "+
			"%.0f), coverage %.1f %%, refused %.1f %%\n",
		len(list),
		figures["duration_err"],
		figures["duration_err_p80"],
		figures["duration_coverage80"],
		figures["duration_refused_pct"],
	)

	return err
}

func readDurations(path string) (past []history.Past, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, file.Close()) }()

	return importer.ReadMLPerf(file)
}

// durations asks for each organisation what was learned from others.
func durations(past []history.Past) ([]durationPrediction, error) {
	var groups []string
	for i := range past {
		groups = append(groups, past[i].Group)
	}

	slices.Sort(groups)
	groups = slices.Compact(groups)
	each := make([][]durationPrediction, durationFolds)
	errs := make([]error, durationFolds)
	parallel(durationFolds, func(k int) {
		var train, test []history.Past
		for i := range past {
			if slices.Index(groups, past[i].Group)%durationFolds == k {
				test = append(test, past[i])
			} else {
				train = append(train, past[i])
			}
		}

		model, err := duration.Train(train, 1)
		if err != nil {
			errs[k] = err
			return
		}

		for i := range test {
			d, err := model.Predict(test[i].Features, 0)
			each[k] = append(each[k], durationPrediction{
				relativeError: math.Abs(d.Mid-test[i].Seconds) / test[i].Seconds,
				covered:       d.Low <= test[i].Seconds && test[i].Seconds <= d.High,
				refused:       err != nil,
			})
		}
	})

	return slices.Concat(each...), errors.Join(errs...)
}
