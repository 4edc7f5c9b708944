package arch_test

import (
	"slices"
	"strings"
	"testing"
)

// ruleCase is a source and what a rule says about it.
type ruleCase struct {
	name   string
	pkg    string // where the source stands; internal/queue if empty
	source string // after the package clause
	want   string // part of the finding; "" if there must be none
}

var cases = map[string][]ruleCase{
	"every package has a layer": {
		{name: "unknown package", pkg: "internal/stuff", want: "is in no layer"},
		{name: "unknown package below a known one", pkg: "internal/queue/deep", want: "is in no layer"},
		{name: "known package", pkg: "internal/queue"},
		{name: "one of a family", pkg: "internal/place/baseline"},
	},
	"no package is called util or the like": {
		{name: "util", pkg: "internal/agent/util", want: "name it by what it does"},
		{name: "types", pkg: "internal/types", want: "name it by what it does"},
		{name: "a good name", pkg: "internal/queue"},
	},
	"no init": {
		{name: "init", source: "func init() {}", want: "init"},
		{name: "a method of that name", source: "type t struct{}\nfunc (t) init() {}"},
	},
	"an hour is not written as a number": {
		{name: "seconds", source: "func f(rate float64) float64 { return rate * 3600 }", want: "3600 is an hour"},
		{name: "a fraction", source: "const perHour = 1.0 / 3600", want: "3600 is an hour"},
		{name: "a float", source: "const s = 3600.0", want: "3600.0 is an hour"},
		{name: "with an exponent", source: "const s = 3.6e3", want: "3.6e3 is an hour"},
		{name: "milliseconds", source: "const ms = 3_600_000", want: "3_600_000 is an hour"},
		{name: "another number", source: "const n = 36000"},
		{name: "in a benchmark", pkg: "test/bench", source: "const s = 3600"},
		{name: "by package time", source: "import \"time\"\nconst s = int64(time.Hour / time.Second)"},
	},
	"no mutable package variable": {
		{name: "zero value", source: "var count int", want: "variable count"},
		{name: "number", source: "var limit = 5", want: "variable limit"},
		{name: "second of two", source: "var a, b = []int{1}, 2", want: "variable b"},
		{name: "made map", source: "var cache = make(map[string]int)", want: "variable cache"},
		{name: "mutex", source: "import \"sync\"\nvar mu = sync.Mutex{}", want: "variable mu"},
		{name: "atomic", source: "import \"sync/atomic\"\nvar n = atomic.Int64{}", want: "variable n"},
		{name: "call of another package", source: "import \"os\"\nvar home = os.TempDir()", want: "variable home"},
		{name: "function value", source: "var now = func() int { return 1 }", want: "variable now"},
		{name: "version outside main", source: "var version = \"dev\"", want: "variable version"},
		{name: "table", source: "var table = map[string]int{\"a\": 1}"},
		{name: "pointer to a table", source: "var table = &struct{ a int }{1}"},
		{name: "error", source: "import \"errors\"\nvar errStop = errors.New(\"stop\")"},
		{name: "pattern", source: "import \"regexp\"\nvar word = regexp.MustCompile(`\\w`)"},
		{name: "interface check", source: "type t struct{}\nvar _ interface{} = (*t)(nil)"},
		{name: "embedded file", source: "import _ \"embed\"\n\n//go:embed a.txt\nvar text string"},
		{name: "version of the command", pkg: "cmd/main", source: "var version = \"dev\""},
		{name: "commit of the command", pkg: "cmd/main", source: "var commit = \"\""},
		{name: "another string of the command", pkg: "cmd/main", source: "var mode = \"\"", want: "variable mode"},
		{
			name:   "flag of the tests",
			pkg:    "test/golden",
			source: "import \"flag\"\nvar update = flag.Bool(\"update\", false, \"\")",
		},
		{
			name:   "flag of a package",
			source: "import \"flag\"\nvar update = flag.Bool(\"update\", false, \"\")",
			want:   "variable update",
		},
		{name: "local variable", source: "func f() int { var n int; n++; return n }"},
	},
	"no package variable is changed": {
		{name: "assigned", source: "var t = []int{1}\nfunc f() { t = nil }", want: "changes the package variable t"},
		{
			name:   "assigned from an import",
			source: "import \"strings\"\nvar t = []string{\"\"}\nfunc f() { t = strings.Fields(\"a\") }",
			want:   "variable t",
		},
		{
			name:   "assigned with others",
			source: "var t = []int{1}\nfunc f() { var x int; x, t = 1, nil; _ = x }",
			want:   "variable t",
		},
		{name: "element", source: "var t = map[string]int{}\nfunc f() { t[\"a\"] = 1 }", want: "variable t"},
		{name: "field", source: "var t = struct{ a []int }{}\nfunc f() { t.a[0]++ }", want: "variable t"},
		{name: "deleted", source: "var t = map[string]int{}\nfunc f() { delete(t, \"a\") }", want: "variable t"},
		{
			name:   "sorted in place",
			source: "import \"slices\"\nvar t = []int{1}\nfunc f() { slices.Sort(t) }",
			want:   "variable t",
		},
		{name: "address given away", source: "var t = []int{1}\nfunc f() *[]int { return &t }", want: "variable t"},
		{name: "in a range", source: "var t = [1]int{}\nfunc f() { for t[0] = range 3 {} }", want: "variable t"},
		{
			name:   "of another package",
			source: "import \"net/http\"\nfunc f() { http.DefaultClient = nil }",
			want:   "variable net/http.DefaultClient",
		},
		{
			name:   "a local one of the same name",
			source: "var t = []int{1}\nfunc f() []int { t := []int{2}; t[0] = 1; return t }",
		},
		{name: "a parameter of the same name", source: "var t = []int{1}\nfunc f(t []int) { t[0] = 1 }"},
		{name: "read", source: "var t = []int{1}\nfunc f() int { x := t[0]; x++; return x }"},
		{
			name:   "copied, then sorted",
			source: "import \"slices\"\nvar t = []int{1}\nfunc f() []int { s := slices.Clone(t); slices.Sort(s); return s }",
		},
	},
	"only clock reads the clock": {
		{name: "now", pkg: "internal/server", source: "import \"time\"\nvar _ = time.Now()", want: "time.Now"},
		{
			name:   "function value",
			pkg:    "internal/server",
			source: "import \"time\"\nfunc f() func() time.Time { return time.Now }",
			want:   "time.Now",
		},
		{
			name:   "under another name",
			pkg:    "internal/agent",
			source: "import t \"time\"\nfunc f() { t.Sleep(1) }",
			want:   "time.Sleep",
		},
		{
			name:   "ticker in the wiring",
			pkg:    "cmd/trainyard",
			source: "import \"time\"\nfunc f() { time.NewTicker(1) }",
			want:   "time.NewTicker",
		},
		{name: "clock itself", pkg: "internal/clock", source: "import \"time\"\nfunc f() { time.Sleep(1) }"},
		{
			name:   "arithmetic",
			source: "import \"time\"\nfunc f(a, b time.Time) time.Duration { return a.Sub(b) + time.Second }",
		},
		{
			name:   "a variable called time",
			source: "type c struct{}\nfunc (c) Now() int { return 1 }\nfunc f(time c) int { return time.Now() }",
		},
	},
	"wall time is for those who need it": {
		{
			name:   "in the server",
			pkg:    "internal/server",
			source: "import \"trainyard/internal/clock\"\nvar _ = clock.Wall{}.Now",
			want:   "clock.Wall",
		},
		{
			name:   "in the wiring",
			pkg:    "cmd/trainyard",
			source: "import \"trainyard/internal/clock\"\nfunc f() clock.Clock { return clock.Wall{} }",
			want:   "clock.Wall",
		},
		{
			name:   "steady in the server",
			pkg:    "internal/server",
			source: "import \"trainyard/internal/clock\"\nfunc f() clock.Clock { return clock.NewSteady() }",
		},
		{
			name:   "on the command line",
			pkg:    "internal/cli/console",
			source: "import \"trainyard/internal/clock\"\nfunc f() clock.Clock { return clock.Wall{} }",
		},
	},
	"the environment is read at the edges": {
		{
			name:   "in the server",
			pkg:    "internal/server",
			source: "import \"os\"\nfunc f() { os.Getenv(\"A\") }",
			want:   "os.Getenv",
		},
		{
			name:   "looked up in auth",
			pkg:    "internal/auth",
			source: "import \"os\"\nfunc f() { os.LookupEnv(\"A\") }",
			want:   "os.LookupEnv",
		},
		{name: "in the command", pkg: "cmd/trainyard", source: "import \"os\"\nfunc f() { os.Getenv(\"A\") }"},
		{name: "in a test kit", pkg: "internal/store/storetest", source: "import \"os\"\nfunc f() { os.Getenv(\"CI\") }"},
		{name: "in the agent's parts", pkg: "internal/agent/runtime", source: "import \"os\"\nfunc f() { os.Environ() }"},
	},
	"nothing prints": {
		{name: "fmt", pkg: "internal/cli", source: "import \"fmt\"\nfunc f() { fmt.Println(1) }", want: "fmt.Println"},
		{name: "builtin", pkg: "internal/cli", source: "func f() { println(1) }", want: "println"},
		{
			name:   "to a writer",
			pkg:    "internal/cli",
			source: "import (\"fmt\"; \"io\")\nfunc f(w io.Writer) { fmt.Fprintln(w, 1) }",
		},
		{name: "to a string", source: "import \"fmt\"\nfunc f() string { return fmt.Sprint(1) }"},
	},
	"no global logger": {
		{
			name:   "slog",
			pkg:    "internal/server",
			source: "import \"log/slog\"\nfunc f() { slog.Info(\"a\") }",
			want:   "slog.Info",
		},
		{
			name:   "default",
			pkg:    "cmd/trainyard",
			source: "import \"log/slog\"\nfunc f() { slog.SetDefault(nil) }",
			want:   "slog.SetDefault",
		},
		{name: "log", pkg: "internal/server", source: "import \"log\"\nfunc f() { log.Fatal(1) }", want: "log.Fatal"},
		{
			name:   "a given one",
			pkg:    "internal/server",
			source: "import \"log/slog\"\nfunc f(l *slog.Logger) { l.Info(\"a\", slog.Int(\"n\", 1)) }",
		},
	},
	"pure packages import nothing that acts": {
		{name: "context", source: "import \"context\"\nvar _ context.Context", want: "may not import context"},
		{name: "os", pkg: "internal/job", source: "import \"os\"\nvar _ os.File", want: "may not import os"},
		{
			name:   "below net",
			pkg:    "internal/yardmaster",
			source: "import \"net/http\"\nvar _ http.Client",
			want:   "may not import net/http",
		},
		{name: "sql", source: "import \"database/sql\"\nvar _ sql.DB", want: "may not import database/sql"},
		{name: "log", source: "import \"log/slog\"\nvar _ slog.Logger", want: "may not import log/slog"},
		{name: "sync", source: "import \"sync\"\nvar _ sync.Mutex", want: "may not import sync"},
		{name: "global chance", source: "import \"math/rand\"\nvar _ rand.Rand", want: "may not import math/rand"},
		{name: "for its effect", source: "import _ \"os/signal\"", want: "may not import os/signal"},
		{name: "testing", source: "import \"testing\"\nvar _ testing.T", want: "may not import testing"},
		{name: "testing in a test kit", pkg: "internal/place/placetest", source: "import \"testing\"\nvar _ testing.T"},
		{name: "a module", source: "import _ \"go.yaml.in/yaml/v3\"", want: "may not import the module go.yaml.in/yaml/v3"},
		{name: "the module it may use", pkg: "internal/spec", source: "import _ \"go.yaml.in/yaml/v3\""},
		{name: "text of addresses", source: "import _ \"net/netip\""},
		{name: "clock may wait", pkg: "internal/clock", source: "import _ \"context\""},
		{name: "an edge may act", pkg: "internal/server", source: "import _ \"net/http\""},
		{name: "our own", source: "import _ \"trainyard/internal/job\""},
	},
	"pure packages start nothing": {
		{name: "goroutine", source: "func f() { go f() }", want: "starts a goroutine"},
		{name: "channel", pkg: "internal/yardmaster", source: "type t struct{ c chan int }", want: "has a channel"},
		{name: "select", source: "func f() { select {} }", want: "selects"},
		{name: "receive", source: "func f(c interface{}) { <-c }", want: "receives"},
		{name: "send", source: "func f(c interface{}) { c <- 1 }", want: "sends"},
		{name: "an edge may", pkg: "internal/agent", source: "func f() { go f() }"},
		{name: "clock may", pkg: "internal/clock", source: "func f(c chan int) { select { case <-c: } }"},
	},
	"pure packages roll no dice of their own": {
		{name: "global source", source: "import \"math/rand/v2\"\nfunc f() int { return rand.IntN(6) }", want: "rand.IntN"},
		{
			name:   "local time zone",
			source: "import \"time\"\nfunc f(t time.Time) time.Time { return t.In(time.Local) }",
			want:   "time.Local",
		},
		{name: "given source", source: "import \"math/rand/v2\"\nfunc f(r *rand.Rand) int { return r.IntN(6) }"},
		{
			name:   "seeded source",
			source: "import \"math/rand/v2\"\nfunc f(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }",
		},
		{name: "an edge may", pkg: "internal/agent", source: "import \"math/rand/v2\"\nfunc f() int { return rand.IntN(6) }"},
	},
}

// source makes a file of a package out of a case.
func source(pkgPath, body string) (name, text string) {
	name = pkgPath[strings.LastIndex(pkgPath, "/")+1:]
	return name + ".go", "// Package " + name + " is a case.\npackage " + name + "\n\n" + body + "\n"
}

func TestRulesFlagWhatTheyMust(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, r := range rules {
		known[r.name] = true
	}

	for name := range cases {
		if !known[name] {
			t.Errorf("cases for %q, which is no rule", name)
		}
	}

	for _, r := range rules {
		if len(cases[r.name]) == 0 && r.name != "every package has exactly one package comment" &&
			r.name != "files are small" {
			t.Errorf("rule %q has no cases", r.name)
		}

		for _, tt := range cases[r.name] {
			t.Run(r.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()

				if tt.pkg == "" {
					tt.pkg = "internal/queue"
				}

				file, text := source(tt.pkg, tt.source)
				p, err := load(tt.pkg, map[string]string{file: text})
				if err != nil {
					t.Fatal(err)
				}

				expect(t, r.check(p), tt.want)
			})
		}
	}
}

// expect checks that there is a finding with this text, or none at all if it is "".
func expect(t *testing.T, findings []string, want string) {
	t.Helper()

	if want == "" {
		if len(findings) > 0 {
			t.Errorf("flagged, but is fine: %q", findings)
		}

		return
	}

	if !slices.ContainsFunc(findings, func(f string) bool { return strings.Contains(f, want) }) {
		t.Errorf("findings %q, want one with %q", findings, want)
	}
}

func TestPackageCommentRule(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"none", map[string]string{"a.go": "package queue"}, "0 package comments"},
		{
			"two",
			map[string]string{"a.go": "// Package queue a.\npackage queue", "b.go": "// Package queue b.\npackage queue"},
			"2 package comments",
		},
		{"another beginning", map[string]string{"a.go": "// Queue of jobs.\npackage queue"}, "begins with"},
		{"not attached", map[string]string{"a.go": "// Package queue a.\n\npackage queue"}, "0 package comments"},
		{"one of two files", map[string]string{"a.go": "// Package queue a.\npackage queue", "b.go": "package queue"}, ""},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := load("internal/queue", tt.files)
			if err != nil {
				t.Fatal(err)
			}

			expect(t, checkComment(p), tt.want)
		})
	}
}

func TestSizeRule(t *testing.T) {
	t.Parallel()

	file := func(before string, lines int) string {
		return before + "package queue\n" + strings.Repeat("var _ = 1\n", lines-1)
	}
	tests := []struct {
		name   string
		source string
		want   string
	}{
		{"one line too many", file("", 601), "a.go: 601 lines of code"},
		{"longest file", file("", 600), ""},
		{"comments are free", file(strings.Repeat("// a\n", 300)+"/*\n"+strings.Repeat("b\n", 300)+"*/\n", 600), ""},
		{"blank lines are free", file(strings.Repeat("\n", 600), 600), ""},
		{"a comment behind code makes no second line", file("", 600) + "// end\n", ""},
		{"comments do not hide code", file(strings.Repeat("// a\n", 600), 601), "601 lines of code"},
		{
			"a raw string counts with all its lines",
			file("", 100) + "var _ = `" + strings.Repeat("\n", 500) + "`\n",
			"601 lines of code",
		},
		{"two statements of one line", file("", 599) + "var _ = 1; var _ = 2\n", ""},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			p, err := load("internal/queue", map[string]string{"a.go": tt.source})
			if err != nil {
				t.Fatal(err)
			}

			expect(t, checkSize(p), tt.want)
		})
	}
}

func TestAPackageMayBeLarge(t *testing.T) {
	t.Parallel()

	sources := map[string]string{}
	for name := range strings.SplitSeq("abcdefgh", "") {
		sources[name+".go"] = "package queue\n" + strings.Repeat("var _ = 1\n", 599)
	}

	p, err := load("internal/queue", sources)
	if err != nil {
		t.Fatal(err)
	}

	expect(t, checkSize(p), "")
}

func TestStaleNamesAreFlagged(t *testing.T) {
	t.Parallel()

	names := map[string]string{
		"internal/queue": "layer decisions", "internal/gone": "layer decisions",
		"internal/gone/*": "adapters", "internal/place/*": "families",
	}

	got := staleNames(names, []string{"internal/queue", "internal/place", "internal/place/rules"})

	want := []string{
		"internal/arch_test.go, layer decisions: there is no package internal/gone",
		"internal/arch_test.go, adapters: there is no package internal/gone/*",
	}

	if !slices.Equal(got, want) {
		t.Errorf("findings = %q, want %q", got, want)
	}
}

func TestImportRule(t *testing.T) {
	t.Parallel()
	allowed, err := parseSideways(
		[]string{"place -> queue", "place/* -> place, queue", "cli → api # comment", "", "# comment"},
	)
	if err != nil {
		t.Fatal(err)
	}

	tests := []struct{ name, from, to, want string }{
		{"lower layer", "internal/queue", "internal/job", ""},
		{"higher layer", "internal/job", "internal/queue", "its layer decisions is above nouns"},
		{"core does not know the store", "internal/yardmaster", "internal/store", "above yardmaster"},
		{"listed sideways", "internal/place", "internal/queue", ""},
		{"listed sideways by family", "internal/place/baseline", "internal/place", ""},
		{"not listed sideways", "internal/queue", "internal/place", "does not list it"},
		{"sideways with an arrow and a comment", "internal/cli", "internal/api", ""},
		{"adapter from the wiring", "cmd/trainyard", "internal/store/sql", ""},
		{"adapter from a test folder", "test/bench", "internal/store/sql", ""},
		{"adapter from an edge", "internal/server", "internal/store/sql", "is an adapter"},
		{"engine from an edge", "internal/server", "internal/engine/agents", "is an adapter"},
		{"port from an edge", "internal/server", "internal/store", ""},
		{"contract suite from the wiring", "cmd/trainyard", "internal/store/storetest", "for tests alone"},
		{"contract suite from a test folder", "test/bench", "internal/store/storetest", ""},
		{"one test kit from another", "internal/store/storetest", "internal/store/storetest/pgtest", ""},
		{"agent and core", "internal/agent", "internal/yardmaster", "do not know each other"},
		{"agent's part and store", "internal/agent/runtime", "internal/store", "do not know each other"},
		{"agent and decisions", "internal/agent", "internal/queue", "do not know each other"},
		{"agent and nouns", "internal/agent", "internal/job", ""},
		{"cli and server", "internal/cli", "internal/server", "do not know each other"},
		{"cli and decisions", "internal/cli", "internal/place/baseline", "do not know each other"},
		{"cli and spec", "internal/cli", "internal/spec", ""},
		{"unknown package", "internal/server", "internal/stuff", "in no layer"},
		{"wiring from inside", "internal/server", "cmd/trainyard", "above edges"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file, text := source(tt.from, "import _ \"trainyard/"+tt.to+"\"")
			p, err := load(tt.from, map[string]string{file: text})
			if err != nil {
				t.Fatal(err)
			}

			expect(t, checkImports(p, allowed), tt.want)
		})
	}
}

func TestSidewaysListIsReadFromTheText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string
	}{
		{"in the fence", "a\n```text sideways imports\nplace -> queue\n```\n", []string{"place -> queue"}},
		{
			"in the line before",
			"```\nother\n```\n\nSideways imports:\n\n```\nplace -> queue\n```\n",
			[]string{"place -> queue"},
		},
		{"not there", "```\nplace -> queue\n```\n", nil},
		{"title belongs to another block", "sideways imports\n```\na -> b\n```\n```\nc -> d\n```", []string{"a -> b"}},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if got := fencedBlock(tt.text, "sideways imports"); !slices.Equal(got, tt.want) {
				t.Errorf("block = %q, want %q", got, tt.want)
			}
		})
	}

	if _, err := parseSideways([]string{"place queue"}); err == nil {
		t.Error("a line without an arrow is accepted")
	}
}

func TestStaleSidewaysImportIsFlagged(t *testing.T) {
	t.Parallel()
	allowed, err := parseSideways([]string{"place -> queue", "place -> spec"})
	if err != nil {
		t.Fatal(err)
	}

	p, err := load("internal/place", map[string]string{"a.go": "package place\nimport _ \"trainyard/internal/queue\""})
	if err != nil {
		t.Fatal(err)
	}

	got := staleSideways([]*pkg{p}, allowed)
	if len(got) != 1 || !strings.Contains(got[0], "internal/place -> internal/spec") {
		t.Errorf("stale = %q, want place -> spec alone", got)
	}
}
