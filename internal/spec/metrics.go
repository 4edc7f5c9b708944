package spec

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
	"trainyard/internal/pattern"
)

const maxMetricRules = 16

// metricRule returns the newest rule of a spec, which is the one that is read or written.
func metricRule(s *job.Spec) *job.MetricRule {
	if len(s.Metrics) == 0 {
		s.Metrics = append(s.Metrics, job.MetricRule{})
	}

	return &s.Metrics[len(s.Metrics)-1]
}

// metricsField says where metrics are found that the yard would not find by itself.
func metricsField() field {
	return field{
		name:    "metrics",
		example: `[{match: 'it (?P<step>\d+) err (?P<val_loss>\S+)'}]`,
		also:    []string{"metric", "log_patterns"},
		list: &list{
			most: maxMetricRules,
			add:  func(s *job.Spec) { s.Metrics = append(s.Metrics, job.MetricRule{}) },
			each: eachMetricRule,
		},
		doc: "Additional metric sources. The output of common tools, TensorBoard files, Lightning's CSV and Hugging " +
			"Face's reports are found without it; " +
			"each entry adds one source, which takes precedence over what is found automatically.",
		fields: []field{
			{
				name:    "match",
				kind:    matchKind(),
				example: `'it (?P<step>\d+) err (?P<val_loss>\S+)'`,
				also:    []string{"regex", "regexp", "pattern"},
				doc: "A regular expression for lines of output. Named groups are metrics; step, total, epoch and epochs are " +
					"progress.",
			},
			{
				name:    "file",
				kind:    insideKind(func(s *job.Spec) *string { return &metricRule(s).File }),
				example: "logs/*.csv",
				also:    []string{"path", "glob"},
				doc: "Files in the working directory that hold metrics: TensorBoard events, CSV with a header, JSON lines. " +
					"* matches any name.",
			},
			{name: "mlflow", kind: flagKind(func(s *job.Spec) *bool { return &metricRule(s).MLflow }), example: "true",
				doc: "Whether the program's MLflow client reports to Trainyard. It then does not report elsewhere."},
		},
	}
}

// eachMetricRule returns a spec for each rule that has this rule alone.
func eachMetricRule(s *job.Spec) []*job.Spec {
	var all []*job.Spec
	for _, r := range s.Metrics {
		all = append(all, &job.Spec{Metrics: []job.MetricRule{r}})
	}

	return all
}

// matchKind reads a regular expression with at least one named group.
func matchKind() kind {
	return stringKind(
		"a regular expression",
		func(s *job.Spec) *string { return &metricRule(s).Match },
		func(s string) (string, string) {
			const example = `write it as in 'step (?P<step>\d+) loss (?P<loss>\S+)'`

			if len(s) > pattern.MaxText {
				return fmt.Sprintf("must have at most %d bytes", pattern.MaxText), "shorten it"
			}

			re, err := pattern.Compile(s)
			switch {
			case err != nil:
				return "must be a regular expression (" + err.Error() + ")", example
			case !slices.ContainsFunc(re.SubexpNames(), func(n string) bool { return n != "" }):
				return "must have a named group", example
			}

			return "", ""
		},
	)
}

// flagKind reads true or false; false says nothing and is not written.
func flagKind(at func(*job.Spec) *bool) kind {
	k := boolKind(at)
	write := k.write
	k.write = func(s *job.Spec) (*yaml.Node, error) {
		if !*at(s) {
			return nil, nil
		}

		return write(s)
	}

	return k
}

// metrics checks that each rule says exactly one thing.
func (r *reader) metrics(d *draft) {
	for i, rule := range d.entry.Spec.Metrics {
		at, good := d.at[metricPath(i)]
		if !good {
			continue // reported when it was read
		}

		said := 0
		for _, given := range []bool{rule.Match != "", rule.File != "", rule.MLflow} {
			if given {
				said++
			}
		}

		if said != 1 {
			r.Fail(
				at,
				"bad_value",
				metricPath(i),
				"must have exactly one of match, file and mlflow: true, got "+strconv.Itoa(said),
				"write a separate entry for each",
			)
		}
	}
}

func metricPath(i int) string { return fmt.Sprintf("metrics[%d]", i) }
