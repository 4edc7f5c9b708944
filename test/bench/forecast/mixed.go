package main

import (
	"fmt"
	"io"

	"trainyard/internal/forecast/calibrate"
)

// mixed returns the curves of language models as if nobody had told them apart: all under one name and one model,
// though their models, schedules and lengths differ.
func mixed(list []sample) []sample {
	var out []sample

	for i := range list {
		if list[i].source != "nanogpt" {
			continue
		}

		s := list[i]
		s.source = "mixed"
		s.Features.Name, s.Features.Model = "nanogpt", "gpt2"
		out = append(out, s)
	}

	return out
}

// reportMixed measures forecasts of curves that share a name and differ in kind. As everywhere, the finished jobs are
// of other groups.
func reportMixed(w io.Writer, list []sample, half string, figures map[string]float64) error {
	curves := mixed(list)
	if len(curves) == 0 {
		return nil
	}

	parts := makeFolds(curves)
	if err := selectHalf(parts, half); err != nil {
		return err
	}

	blend := summarize(filter(score(parts), "mixed", "blend", nil))
	for k, part := range calibrate.ReplayPoints {
		name := fmt.Sprintf("mixed_err%.0f", 100*part)
		figures[name], figures[name+"_p80"] = blend.median[k], blend.p80[k]
	}

	figures["mixed_coverage80"], figures["mixed_width80"] = blend.coverage, blend.width
	_, err := fmt.Fprintf(
		w,
		"All nanoGPT curves under one name: error %.1f (%.0f) / %.1f (%.0f) / %.1f (%.0f) / %.1f (%.0f) %%, "+
			"coverage %.1f %%, width %.2f, failures %d of %d\n",
		blend.median[0], blend.p80[0], blend.median[1], blend.p80[1], blend.median[2], blend.p80[2], blend.median[3],
		blend.p80[3], blend.coverage, blend.width, blend.failed, blend.count,
	)

	return err
}
