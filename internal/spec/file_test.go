package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/yamlfile"
)

func TestSeveralJobsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	text := "---\nname: train\nrun: b\nneeds: prepare\n---\n# the first to run\nname: prepare\nrun: a\n---\nname: report\nrun: c\nneeds: [train, prepare]\n---\n"
	file, err := Parse([]byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, e := range file.Jobs {
		got = append(got, fmt.Sprintf("%d %s %v", e.Line, e.Spec.Name, e.Spec.Needs))
	}

	if diff := cmp.Diff([]string{"2 train [prepare]", "7 prepare []", "10 report [train prepare]"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCircles(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		needs map[string][]string
		want  []string
	}{
		{"a chain has none", map[string][]string{"a": nil, "b": {"a"}, "c": {"b"}}, nil},
		{"two ways to one job are none", map[string][]string{"a": nil, "b": {"a"}, "c": {"a"}, "d": {"b", "c"}}, nil},
		{"two jobs", map[string][]string{"a": {"b"}, "b": {"a"}}, []string{"a needs b needs a"}},
		{
			"the way into the circle is not part of it",
			map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}},
			[]string{"got b needs c needs d needs b"},
		},
		{
			"two circles",
			map[string][]string{"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c"}},
			[]string{"a needs b needs a", "c needs d needs c"},
		},
		{"itself", map[string][]string{"a": {"a"}, "b": nil}, []string{"must not include the job itself"}},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var docs []string
			for _, name := range []string{"a", "b", "c", "d"} {
				if needs, ok := tt.needs[name]; ok {
					docs = append(docs, fmt.Sprintf("name: %s\nrun: x\nneeds: [%s]\n", name, strings.Join(needs, ", ")))
				}
			}

			_, err := Parse([]byte(strings.Join(docs, "---\n")), Options{})
			got := codes(err)
			if len(got) != len(tt.want) {
				t.Fatalf("codes = %v, want %d cycles (%v)", got, len(tt.want), err)
			}

			for i, w := range tt.want {
				if got[i] != "cycle" || !strings.Contains(err.Error(), w) {
					t.Errorf("%v does not tell %q", err, w)
				}
			}
		})
	}
}

func TestLongCircleIsToldWhole(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\nname: n%d\nrun: x\nneeds: n%d\n", i, (i+1)%1000)
	}

	_, err := Parse([]byte(text.String()), Options{})
	if got := codes(err); len(got) != 1 || got[0] != "cycle" ||
		!strings.Contains(err.Error(), "n998 needs n999 needs n0") {
		t.Errorf("codes = %v", got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	jobs := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "---\nname: n%d\nrun: x\n", i)
		}

		return text.String()
	}

	many := func(n int, format string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, format, i)
		}

		return text.String()
	}

	tests := []struct {
		name string
		text string
		want []string
	}{
		{"1000 jobs are read", jobs(1000), nil},
		{"1001 jobs are too many", jobs(1001), []string{"too_large"}},
		{"a long file", strings.Repeat("#", maxFile+1), []string{"too_large"}},
		{"the longest run", "run: " + strings.Repeat("x", maxCommand), nil},
		{"a long run", "run: " + strings.Repeat("x", maxCommand+1), []string{"too_large"}},
		{
			"a long run of many lines",
			"run:\n" + strings.Repeat("- "+strings.Repeat("x", 1000)+"\n", 300),
			[]string{"too_large"},
		},
		{"a large environment", "run: a\nenv: {A: " + strings.Repeat("x", maxEnv) + "}", []string{"too_large"}},
		{"the largest environment", "run: a\nenv: {A: " + strings.Repeat("x", maxEnv-1) + "}", nil},
		{"a long list", "run: a\nname: a\nneeds: [" + strings.Repeat("b, ", maxItems+1) + "]", []string{"too_large"}},
		{
			"the most rates",
			"run: a\nresources: {gpus: 1..}\nspeed: {work: 1, rates: [" + many(maxRates, "{gpus: 1%d, per_second: 1}, ") + "]}",
			nil,
		},
		{
			"too many rates",
			"run: a\nresources: {gpus: 1..}\nspeed: {work: 1, rates: [" + many(
				maxRates+1,
				"{gpus: 1%d, per_second: 1}, ",
			) + "]}",
			[]string{"too_large"},
		},
		{
			"the most kinds of rates",
			"run: a\nresources: {gpus: 1}\nspeed: {work: 1, rates: [" + many(
				maxRateKinds,
				"{gpu: a%d, gpus: 1, per_second: 1}, ",
			) + "]}",
			nil,
		},
		{
			"rates of too many kinds",
			"run: a\nresources: {gpus: 1}\nspeed: {work: 1, rates: [" + many(
				maxRateKinds+1,
				"{gpu: a%d, gpus: 1, per_second: 1}, ",
			) + "]}",
			[]string{"too_large"},
		},
		{
			"a very deep file",
			"run: a\nparams: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
			[]string{"too_large"},
		},
		{"a file too deep for YAML", "run: a\nparams: " + strings.Repeat("[", 20000), []string{"yaml_syntax"}},
		{
			"many mistakes",
			"run: a\n" + many(500, "zz%d: 1\n"),
			append(slices.Repeat([]string{"unknown_key"}, yamlfile.MaxMistakes), "too_many_errors"),
		},
		{"growing aliases", "run: a\nparams:\n  a: &a [x, x]\n  b: &b [*a, *a]\n  c: [*b, *b]\n",
			slices.Repeat([]string{"not_supported"}, 4)},
		{"no UTF-8", "run: a\nname: \xff\n", []string{"yaml_syntax"}},
		{"control character", "run: a\x07\n", []string{"yaml_syntax"}},
		{"a mark at the start is no mistake", "\ufeffrun: a\n", nil},
		{"DOS line ends are no mistake", "run: a\r\nretry: 1\r\n", nil},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(tt.text), Options{})
			if err != nil {
				checkErrors(t, err)
			}

			if diff := cmp.Diff(tt.want, codes(err)); diff != "" {
				t.Errorf("codes (-want +got)\n%s", diff)
			}
		})
	}
}

func TestPlaceOfUnreadableBytes(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("run: a\nname: é\x01\n"), Options{})
	if want := "line 2, column 8: the file contains the control character U+0001 (save it as plain UTF-8 text)"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAFileOfUnknownKeysCostsFewComparisons(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&text, "gpsu%d: 1\n", i)
	}

	_, err := Parse([]byte(text.String()), Options{})

	var list fault.List
	if !errors.As(err, &list) || len(list) != yamlfile.MaxMistakes+1 {
		t.Fatalf("%d mistakes, want %d and a count of the others", len(list), yamlfile.MaxMistakes)
	}
}

// Once as many mistakes are found as are reported, no more work is done for the others: each costs as many allocations
// as the YAML package makes of a line.
func TestMistakesThatAreNotReportedCostNothing(t *testing.T) { //nolint:paralleltest // it counts allocations
	for name, tc := range map[string]struct {
		file func(n int) string
		most float64 // allocations for each further mistake
	}{
		"unknown keys": {func(n int) string {
			var text strings.Builder
			for i := range n {
				fmt.Fprintf(&text, "gpsu%d: 1\n", i)
			}

			return text.String()
		}, 12},
		"unknown needs": {func(n int) string {
			var text strings.Builder
			for i := range 20 {
				fmt.Fprintf(&text, "---\nname: job-%d\nrun: x\nneeds: [", i)

				for k := range n / 20 {
					fmt.Fprintf(&text, "jbo-%d-%d, ", i, k)
				}

				text.WriteString("]\n")
			}

			return text.String()
		}, 12},
	} {
		cost := func(n int) float64 {
			text := []byte(tc.file(n))

			return testing.AllocsPerRun(1, func() {
				if _, err := Parse(text, Options{}); err == nil {
					t.Error("the file is accepted")
				}
			})
		}

		if each := (cost(4000) - cost(2000)) / 2000; each > tc.most {
			t.Errorf("%s: %.1f allocations for each further mistake, want at most %.0f", name, each, tc.most)
		}
	}
}

func TestSchemaHasTheKeysOfTheParser(t *testing.T) {
	t.Parallel()
	var top map[string]any
	if err := json.Unmarshal(Schema(), &top); err != nil {
		t.Fatal(err)
	}

	var fromSchema func(prefix string, s map[string]any) []string
	fromSchema = func(prefix string, s map[string]any) []string {
		var all []string
		properties, _ := s["properties"].(map[string]any)
		if properties != nil && s["additionalProperties"] != false {
			t.Errorf("%s: unknown keys are not refused", prefix)
		}

		for name, p := range properties {
			inside := p.(map[string]any)
			if items, ok := inside["items"].(map[string]any); ok && inside["type"] == "array" {
				inside = items
			}

			all = append(append(all, yamlfile.Join(prefix, name)), fromSchema(yamlfile.Join(prefix, name), inside)...)
		}

		return all
	}

	// The parser's keys are found from outside: an unknown key is told as such.
	var fromParser func(prefix, around string, fields []field) []string
	fromParser = func(prefix, around string, fields []field) []string {
		var all []string

		for _, f := range fields {
			path := yamlfile.Join(prefix, f.name)
			_, err := Parse([]byte(strings.Replace(around, "…", f.name+": {}", 1)), Options{})
			if !slices.Contains(codes(err), "unknown_key") {
				all = append(all, path)
			}

			inside := f.name + ": {…}"
			if f.list != nil {
				inside = f.name + ": [{…}]"
			}

			all = append(all, fromParser(path, strings.Replace(around, "…", inside, 1), f.fields)...)
		}

		return all
	}

	want, got := fromParser("", "…\n", jobFields()), fromSchema("", top)
	slices.Sort(want)

	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-parser +schema)\n%s", diff)
	}

	if len(got) != 86 {
		t.Errorf("there are %d keys, want 86", len(got))
	}
}

func TestGeneratedTextsAreStable(t *testing.T) {
	t.Parallel()
	schema, reference := Schema(), Reference()
	for range 20 {
		if !bytes.Equal(schema, Schema()) || !bytes.Equal(reference, Reference()) {
			t.Fatal("two calls differ")
		}
	}

	for _, row := range []string{
		"| `run` | shell commands, as a string or a list of strings | `python train.py --lr 0.1` | required | The shell commands of the job. They are started once on each node, by bash -e (sh -e where there is no bash): the first command that fails ends the job. |\n",
		"| The project that the job belongs to. Without it the job belongs to no project. |\n", // newcomer 33; run is 30
		"| `grace` | a duration | `1m` | 30s |", "| `resources.gpus` |", "| `checkpoint.every` |",
		"| `speed.rates` | a list of mappings |", "| `speed.rates[].per_second` | a number of units | `12.5K` | required |", "| `late_cost` | an amount of money | `$2.50` | none |",
	} {
		if !bytes.Contains(reference, []byte(row)) {
			t.Errorf("the reference lacks %s", row)
		}
	}

	for line := range strings.Lines(string(reference)) {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") != 6 {
			t.Errorf("row with a wrong number of cells: %s", line)
		}
	}
}

func TestPatternsOfTheSchemaAllowWhatTheParserReads(t *testing.T) {
	t.Parallel()
	good := map[string][]string{
		"name":  {"a", "resnet50-cifar"},
		"gpus":  {"4", "1..8", "2..", "2+", "..8"},
		"nodes": {"1..4"},
		"cpus":  {"0.5"},
		"gpu": {
			"A100",
			"A100:80GB",
			"A100:80GB:8",
			"A100:1..8",
			"RTX 4090",
			"24GB..",
			"24GB..80GB:2",
		},
		"gpu_memory": {"24GB", "24GB..", "24GB..80GB", "..80GB", "24GB+", "1.5 GiB.."},
		"memory":     {"32GB", "1.5 GiB", "512mb", "2g"},
		"expect":     {"6h", "1h30m", "1d 12h", "1.5h"},
		"budget":     {"$40", "1.25"},
		"deadline": {
			"2026-12-01T09:00",
			"2026-12-01 09:00:30",
			"2026-12-01T09:00:00Z",
			"2026-12-01T09:00:00.5+02:00",
		},
		"params": {"25.6M", "7b", "350 K"},
		"rates.gpu": {
			"A100",
			"A100:80GB",
			"RTX 4090",
		},
		"work":       {"130M", "0.5", "1.5 K"},
		"per_second": {"12.5K"},
		"start":      {"0s", "45s", "1m30s"},
		"late_cost":  {"$2.50", "0.01"},
	}

	bad := map[string]string{
		"name":       "My Job",
		"gpus":       "x",
		"cpus":       "many",
		"gpu":        "?",
		"memory":     "lots",
		"expect":     "soon",
		"deadline":   "tomorrow",
		"params":     "many",
		"rates.gpu":  "24GB..",
		"work":       "lots",
		"per_second": "fast",
		"start":      "soon",
		"late_cost":  "much",
	}

	var check func(list string, fields []field)
	check = func(list string, fields []field) {
		for _, f := range fields {
			inside := ""
			if f.list != nil {
				inside = f.name // its fields may be written otherwise than those of the same name elsewhere
			}

			check(inside, f.fields)

			if f.fields != nil {
				continue
			}

			s := f.kind.schema()
			if any, ok := s["anyOf"].([]schema); ok {
				s = any[0]
			}

			pattern, ok := s["pattern"].(string)
			if !ok {
				continue
			}

			re, err := regexp.Compile(pattern)
			if err != nil {
				t.Errorf("%s: %v", f.name, err)
				continue
			}

			name := yamlfile.Join(list, f.name)
			if list != "" && good[name] == nil {
				name = f.name
			}

			for _, text := range good[name] {
				if !re.MatchString(text) {
					t.Errorf("%s: the schema refuses %q", f.name, text)
				}
			}

			if text, ok := bad[name]; ok && re.MatchString(text) {
				t.Errorf("%s: the schema allows %q", f.name, text)
			}
		}
	}

	check("", jobFields())
}
