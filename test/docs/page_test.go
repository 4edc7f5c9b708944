package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()

	page, err := Parse(strings.Join([]string{
		"# Title",
		"<!-- session: up --fake-gpus 2xA100:80GB -->",
		"<!-- file: job.yaml -->",
		"```yaml",
		"run: echo hello",
		"```",
		"Then",
		"```console",
		"$ trainyard submit job.yaml \\",
		">   --detach",
		"j1 …",
		"",
		"$ false",
		"[exit status 1]",
		"```",
		"<!-- not run: needs a cloud account -->",
		"```sh",
		"aws login",
		"```",
		"```python",
		"print()",
		"```",
	}, "\n"))
	if err != nil {
		t.Fatal(err)
	}

	want := &Page{
		Steps: []Step{
			{Line: 2, Session: "up --fake-gpus 2xA100:80GB"},
			{Line: 4, File: "job.yaml", Content: "run: echo hello\n"},
			{Line: 9, Command: "trainyard submit job.yaml \\\n  --detach", Output: []string{"j1 …"}},
			{Line: 13, Command: "false", Status: 1},
		},
		Skipped: []Skip{{Line: 17, Reason: "needs a cloud account"}},
	}

	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("page:\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()

	for name, text := range map[string]string{
		"a block that would be typed and is not run": "```sh\ntrainyard jobs\n```",
		"a block without a language":                 "```\ntrainyard jobs\n```",
		"a reason that is empty":                     "<!-- not run:  -->\n```sh\nx\n```",
		"a transcript without a command":             "```console\nhello\n```",
		"a block without an end":                     "```console\n$ true",
		"a comment without a block":                  "<!-- file: a -->\ntext",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if page, err := Parse(text); err == nil {
				t.Errorf("accepted as %+v", page)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		expected []string
		output   string
		want     bool
	}{
		"the same":                        {[]string{"a b"}, "a b\n", true},
		"other columns":                   {[]string{"a b"}, "a      b\n", true},
		"another word":                    {[]string{"a b"}, "a c\n", false},
		"anything in a line":              {[]string{"j1 … SUCCEEDED"}, "j1 digits SUCCEEDED\n", true},
		"any lines":                       {[]string{"first", "…", "last"}, "first\n2\n3\nlast\n", true},
		"no lines where any may stand":    {[]string{"first", "…", "last"}, "first\nlast\n", true},
		"nothing at the end of a line":    {[]string{"PENDING …"}, "PENDING\n", true},
		"another word at the end":         {[]string{"PENDING …"}, "PENDINGS\n", false},
		"a line more":                     {[]string{"first"}, "first\nsecond\n", false},
		"a line less":                     {[]string{"first", "second"}, "first\n", false},
		"signs of regular expressions":    {[]string{"1.5 (a)"}, "1x5 (a)\n", false},
		"dots do not stand for line ends": {[]string{"a…b"}, "a\nb\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := Matches(c.expected, c.output); got != c.want {
				t.Errorf("Matches(%q, %q) = %v", c.expected, c.output, got)
			}
		})
	}
}
