package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"trainyard/internal/forecast/calibrate"
)

// mainSources are the sources that count as all: those of the first study, so that figures compare.
var mainSources = []string{"nanogpt", "mlperf", "pollux"}

// filter returns what was said by a method about a source's curves; all stands for several.
func filter(list []prediction, source, method string, main []string) []prediction {
	var out []prediction
	for _, r := range list {
		if r.method == method && (r.source == source || source == "all" && slices.Contains(main, r.source)) {
			out = append(out, r)
		}
	}

	return out
}

// summary is what a method comes to on a source.
type summary struct {
	count, failed      int
	at                 [len(calibrate.ReplayPoints)]int
	median, p80        [len(calibrate.ReplayPoints)]float64
	coverage, width    float64
	intervals, guesses int
}

func summarize(list []prediction) summary {
	var l summary
	var errs [len(calibrate.ReplayPoints)][]float64
	var wide []float64

	var covered int
	for _, r := range list {
		l.count++
		if r.failed {
			l.failed++
		}

		errs[r.replayPoint] = append(errs[r.replayPoint], 100*r.err)

		if r.interval {
			l.intervals++
			wide = append(wide, r.width)

			if r.covered {
				covered++
			}

			if r.guess {
				l.guesses++
			}
		}
	}

	for k := range errs {
		l.at[k], l.median[k], l.p80[k] = len(errs[k]), quantileOf(errs[k], 0.5), quantileOf(errs[k], 0.8)
	}

	l.coverage, l.width = math.NaN(), quantileOf(wide, 0.5)
	if l.intervals > 0 {
		l.coverage = 100 * float64(covered) / float64(l.intervals)
	}

	return l
}

// report prints the table of every source and returns the figures by name.
func report(w io.Writer, list []prediction, names, main []string) (map[string]float64, error) {
	figures := map[string]float64{}
	for _, source := range append([]string{"all"}, names...) {
		if err := reportSource(w, list, source, main, figures); err != nil {
			return nil, err
		}
	}

	for _, key := range []string{"coverage80", "width80", "failures_pct"} {
		figures[key] = figures["all_blend_"+key]
	}

	for key, v := range figures {
		if math.IsNaN(v) {
			delete(figures, key)
		}
	}

	return figures, nil
}

func reportSource(w io.Writer, list []prediction, source string, main []string, figures map[string]float64) error {
	first := summarize(filter(list, source, "blend", main))
	if first.count == 0 {
		return nil
	}

	if _, err := fmt.Fprintf(
		w,
		"%s: %d/%d/%d/%d forecasts at 20/40/60/80 %%\n",
		source,
		first.at[0],
		first.at[1],
		first.at[2],
		first.at[3],
	); err != nil {
		return err
	}

	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', tabwriter.AlignRight)
	say := func(format string, args ...any) { fmt.Fprintf(t, format, args...) } //nolint:errcheck // Flush reports it
	say("20 %%\t40 %%\t60 %%\t80 %%\tfailures\tcoverage\twidth\t\n")

	for _, method := range methodNames() {
		l := summarize(filter(list, source, method, main))
		prefix := source + "_" + method + "_"
		for k, part := range calibrate.ReplayPoints {
			name := fmt.Sprintf("err%.0f", 100*part)
			figures[prefix+name], figures[prefix+name+"_p80"] = l.median[k], l.p80[k]

			if l.at[k] == 0 {
				say("-\t")
				continue
			}

			say("%.1f (%.0f)\t", l.median[k], l.p80[k])
		}

		failed := 100 * float64(l.failed) / float64(l.count)
		figures[prefix+"failures_pct"] = failed
		say("%.1f %%\t", failed)

		if l.intervals > 0 {
			figures[prefix+"coverage80"], figures[prefix+"width80"] = l.coverage, l.width
			say("%.1f %%\t%.2f\t  %s", l.coverage, l.width, method)
		} else {
			say("\t\t  %s", method)
		}

		if l.guesses > 0 {
			say(", %d of %d intervals are guesses", l.guesses, l.intervals)
		}

		say("\n")
	}

	if err := t.Flush(); err != nil {
		return err
	}

	_, err := fmt.Fprintln(w)

	return err
}

// reportGoalCases prints how well reached goals are told from others.
func reportGoalCases(w io.Writer, list []goalCase, figures map[string]float64) error {
	if len(list) == 0 {
		return nil
	}

	for _, told := range []bool{false, true} {
		for _, margin := range margins {
			var part []goalCase
			for _, h := range list {
				if h.hasTotal == told && (h.reached || h.beyond == margin) {
					part = append(part, h)
				}
			}

			area, brier := aucAndBrier(part)

			name, text := "never", "the program does not report its total"
			if told {
				name, text = "never_total", "the program reports its total"
			}

			name = fmt.Sprintf("%s_beyond%.0f", name, 100*margin)
			figures[name+"_auc"], figures[name+"_brier"] = area, brier

			if _, err := fmt.Fprintf(
				w,
				"Goals that are reached from goals %.0f %% beyond: area %.3f, Brier %.3f, %d forecasts; %s\n",
				100*margin,
				area,
				brier,
				len(part),
				text,
			); err != nil {
				return err
			}
		}
	}

	return nil
}
