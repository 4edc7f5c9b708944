package yamlfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
	"trainyard/test/fuzzing"
)

type settings struct {
	Name  string         `yaml:"name"`
	Nodes []node         `yaml:"nodes"`
	Tags  map[string]int `yaml:"tags"`
}

type node struct {
	Class string       `yaml:"class"`
	Watts []float64    `yaml:"watts"`
	Boot  job.Duration `yaml:"boot"`
	Off   bool         `yaml:"off"`
}

func TestAGoodFileIsRead(t *testing.T) {
	t.Parallel()
	text := "name: lab\nnodes:\n  - {class: local, watts: [1, 2.5], boot: 3m, off: true}\ntags: {a: 1}\n"

	var got settings
	if err := yamlfile.Decode([]byte(text), &got).Err(); err != nil {
		t.Fatal(err)
	}

	if got.Name != "lab" || len(got.Nodes) != 1 || got.Nodes[0].Boot.String() != "3m" || got.Tags["a"] != 1 {
		t.Errorf("%+v", got)
	}
}

func TestAllMistakesAreReportedAtTheirPlace(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ text, want string }{
		"unknown keys": {
			"nmae: lab\nnodes:\n  - clas: local\n",
			"line 1, column 1: nmae: unknown key (did you mean name?)\n" +
				"line 3, column 5: nodes[0].clas: unknown key (did you mean class?)",
		},
		"wrong types": {
			"name: [a]\nnodes: {}\ntags: 3\n",
			"line 1, column 7: name: must be a string, got a list (see the documentation of this file)\n" +
				"line 2, column 8: nodes: must be a list, got a mapping (see the documentation of this file)\n" +
				"line 3, column 7: tags: must be a mapping, got \"3\" (see the documentation of this file)",
		},
		"bad values": {
			"nodes:\n  - watts: [1, much]\n    off: perhaps\ntags: {a: b}\n",
			"line 2, column 16: nodes[0].watts[1]: must be a number, got \"much\" (correct the value)\n" +
				"line 3, column 10: nodes[0].off: must be true or false, got \"perhaps\" (correct the value)\n" +
				"line 4, column 11: tags.a: must be an integer, got \"b\" (correct the value)",
		},
		"given twice": {
			"name: a\nname: b\n",
			"line 2, column 1: name: must be given only once, also given at line 1 (remove one of them)",
		},
		"an alias": {
			"name: &a x\n",
			"line 1, column 7: name: the file uses the anchor &a " +
				"(write the value out; anchors, aliases and merge keys are not supported)",
		},
		"no YAML": {
			"name: a: b\n",
			"line 1, column 1: the line has a second ': ', or is indented too far " +
				"(put text that contains ': ' in quotes, or indent the line like its neighbours)",
		},
		"nothing":           {"", "the file is empty (write at least one line of key: value)"},
		"several documents": {"name: a\n---\nname: b\n", "line 3, column 1: the file must have one document, got several (remove the line ---)"},
		"not a mapping":     {"- a\n", "line 1, column 1: must be a mapping, got a list (see the documentation of this file)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var got settings
			err := yamlfile.Decode([]byte(c.text), &got).Err()
			if err == nil || err.Error() != c.want {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestTheCallerAddsMistakesByPath(t *testing.T) {
	t.Parallel()

	var got settings
	f := yamlfile.Decode([]byte("nodes:\n  - class: local\n  - class: moon\n"), &got)
	f.Fail("nodes[1].class", "must be one of local, reserved, got \"moon\"", "correct the value")

	want := `line 3, column 12: nodes[1].class: must be one of local, reserved, got "moon" (correct the value)`
	if err := f.Err(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestManyMistakesAreCounted(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&text, "nmae%d: 1\n", i)
	}

	var got settings
	err := yamlfile.Decode([]byte(text.String()), &got).Err()

	var list fault.List
	if !errors.As(err, &list) || len(list) != yamlfile.MaxMistakes+1 {
		t.Fatalf("%d mistakes", len(list))
	}

	if last := list[len(list)-1].Message; last != "59900 more errors not shown" {
		t.Error(last)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"name: a", "nodes: [{watts: [1]}]", "a: &x [*x]", "tags: {1: 2}", "? [a]\n: b"} {
		f.Add(s)
	}

	for _, s := range []string{"- a\n", "[", "{a: ", "unknown: 1\n", "a: &x [*x]\n"} {
		f.Add(fuzzing.Long(s))
	}

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		var got settings
		err := yamlfile.Decode([]byte(text), &got).Err()

		var list fault.List
		if err != nil && !errors.As(err, &list) {
			t.Errorf("%q: a %T", text, err)
		}
	})
}

func ExampleDecode() {
	var settings struct {
		GPUs int `yaml:"gpus"`
	}

	fmt.Println(yamlfile.Decode([]byte("gpsu: 4\n"), &settings).Err())
	// Output: line 1, column 1: gpsu: unknown key (did you mean gpus?)
}
