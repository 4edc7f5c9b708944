// Package arch_test holds the house rules of the code base as tests.
//
// They parse the sources themselves: a test that asked the go command would be
// answered from its cache. arch_test.go has the tables and walks the tree,
// arch_rules_test.go has one function for each rule, arch_cases_test.go shows each
// rule sources that it must flag and sources that it must not. arch_table_test.go writes
// ARCHITECTURE.md's table of packages, arch_docs_test.go compares what the documents name
// with what exists.
package arch_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "trainyard"

// roots are the folders with packages that the rules are about.
var roots = []string{"internal", "cmd", "test", "tools"}

// layers is the house from the ground up. A package imports lower layers only;
// sideways only what ARCHITECTURE.md lists. A name may end in /* for a family.
// A new package is entered here first.
var layers = []struct {
	name     string
	pure     bool // no I/O, no clock, no chance, no goroutines
	packages []string
}{
	{
		"words",
		true,
		[]string{
			"internal/fault",
			"internal/clock",
			"internal/id",
			"internal/pattern",
			"internal/glob",
			"internal/suggest",
			"internal/money",
			"internal/cron",
			"internal/humanize",
			"internal/quantile",
			"internal/scaling",
			"internal/atomicfile",
			"internal/atomicfile/disktest",
			"internal/executable",
		},
	},
	{
		"nouns",
		true,
		[]string{
			"internal/job",
			"internal/share",
			"internal/fleet",
			"internal/tenant",
			"internal/dataset",
			"internal/gpuspec",
			"internal/metric",
			"internal/yamlfile",
			"internal/contact",
			"internal/checkpoint",
			"internal/inbox",
		},
	},
	{
		"decisions",
		true,
		[]string{
			"internal/spec",
			"internal/quota",
			"internal/queue",
			"internal/place",
			"internal/place/*",
			"internal/place/*/*",
			"internal/formula",
			"internal/forecast",
			"internal/forecast/*",
			"internal/provision",
			"internal/provision/*",
			"internal/ledger",
			"internal/relocate",
			"internal/retention",
		},
	},
	{"yardmaster", true, []string{"internal/yardmaster", "internal/yardmaster/*"}},
	{
		"ports and adapters",
		false,
		[]string{
			"internal/store",
			"internal/store/*",
			"internal/store/storetest/*",
			"internal/backup",
			"internal/blob",
			"internal/blob/*",
			"internal/logs",
			"internal/engine",
			"internal/engine/*",
			"internal/cloud",
			"internal/cloud/*",
			"internal/solver",
			"internal/vault",
			"internal/diskspace",
			"internal/diskspace/smalldisk",
			"internal/tarstream",
			"internal/netguard",
		},
	},
	{
		"edges",
		false,
		[]string{
			"internal/api",
			"internal/api/wire",
			"internal/auth",
			"internal/workdir",
			"internal/logs/archive",
			"internal/server",
			"internal/server/*",
			"internal/agent",
			"internal/agent/*",
			"internal/agent/*/*",
			"internal/cli",
			"internal/cli/*",
			"sdk/python",
		},
	},
	{"sim", false, []string{"internal/sim", "internal/sim/*", "internal/sim/*/*"}},
	{"commands", false, []string{"cmd/*", "cmd/*/*"}},
	{"tests and tools", false, []string{"test/*", "test/*/*", "tools/*"}},
}

// adapters are known to the wiring and to tests alone; everyone else knows the port.
var adapters = []string{"internal/store/sql", "internal/blob/s3", "internal/engine/*", "internal/cloud/*"}

// testKits are imported by tests, and by each other, alone.
var testKits = []string{
	"internal/agent/share/sharetest",
	"internal/atomicfile/disktest",
	"internal/blob/blobtest",
	"internal/cloud/cloudtest",
	"internal/diskspace/smalldisk",
	"internal/place/placetest",
	"internal/store/storetest",
	"internal/store/storetest/*",
}

// strangers may not know each other: they talk over the API.
var strangers = []struct {
	from, never []string
	but         []string
}{
	{
		from: []string{"internal/agent", "internal/agent/*", "internal/agent/*/*"},
		never: append(
			[]string{
				"internal/yardmaster",
				"internal/yardmaster/*",
				"internal/store",
				"internal/store/*",
				"internal/server",
				"internal/cli",
				"internal/cli/*",
			},
			packagesOf("decisions")...),
	},
	{
		from: []string{"internal/cli", "internal/cli/*"},
		never: append(
			[]string{
				"internal/yardmaster",
				"internal/yardmaster/*",
				"internal/store",
				"internal/store/*",
				"internal/server",
				"internal/server/*",
				"internal/agent",
				"internal/agent/*",
			},
			packagesOf("decisions")...),
		but: []string{"internal/spec"}, // validate works without a server
	},
}

// Who may do what is otherwise forbidden.
var (
	readsClock = []string{"internal/clock"}
	// readsWall may use the wall clock: what runs on people's own machines and shows them their time, and what
	// must agree with other programs of the machine.
	readsWall = []string{
		"internal/clock",
		"internal/cli/console",
		"internal/workdir",       // the command line's side: compares with the times of files
		"internal/cloud",         // the boot script reads the same deadline with date
		"internal/cloud/process", // stands in for machines, which have clocks of their own
		"cmd/trainyard/clouds",   // the command offers
	}
	readsEnviron = []string{
		"cmd/*",
		"cmd/*/*",
		"internal/cli",
		"internal/cli/*",
		"internal/agent",
		"internal/agent/*",
		"internal/agent/*/*",
	}
	// thirdParty lists, for pure packages, the modules they may use.
	thirdParty = map[string][]string{
		"internal/spec":              {"go.yaml.in/yaml/v3"},
		"internal/yamlfile":          {"go.yaml.in/yaml/v3"},
		"internal/provision":         {"go.yaml.in/yaml/v3"},
		"internal/place/placetest":   {"pgregory.net/rapid"},
		"internal/forecast/duration": {"gonum.org/v1/gonum/mat", "gonum.org/v1/gonum/stat"},
	}
	// hooks are variables of libraries that the library wants to be set.
	hooks = map[string][]string{
		"internal/server/httpapi": {
			"github.com/danielgtaylor/huma/v2.NewError",
			"github.com/danielgtaylor/huma/v2.DefaultArrayNullable",
		},
	}
	// writesHours are the files that may write an hour as a number, and why.
	writesHours = map[string]string{
		"internal/server/metrics/counts.go": "the bounds of histograms, in seconds, are a list of round figures",
		"internal/sim/report/chart.go":      "the steps of a time axis, in seconds, are a list of round figures",
	}
	// notPure are the exceptions within the pure layers.
	notPure = []string{"internal/clock", "internal/atomicfile", "internal/atomicfile/disktest", "internal/executable"}
)

// maxCodeLines is how many lines of code a file may have, not counting comments and blank lines.
// There is no limit for packages: they are as large as their story.
const maxCodeLines = 600

// packagesOf returns the packages of a layer.
func packagesOf(layer string) []string {
	for _, l := range layers {
		if l.name == layer {
			return l.packages
		}
	}

	return nil
}

// among reports whether a package is in a list of names and families.
func among(pkg string, list []string) bool {
	return slices.ContainsFunc(list, func(pattern string) bool {
		ok, err := path.Match(pattern, pkg)
		return ok && err == nil
	})
}

// layerOf returns the number of a package's layer, -1 if it has none.
func layerOf(pkg string) int {
	return slices.IndexFunc(layers, func(l struct {
		name     string
		pure     bool
		packages []string
	},
	) bool {
		return among(pkg, l.packages)
	})
}

// isPure reports whether a package must be pure.
func isPure(pkg string) bool {
	n := layerOf(pkg)
	return n >= 0 && layers[n].pure && !among(pkg, notPure)
}

// isTests reports whether a package is below test/ or tools/: what no single package owns.
func isTests(pkg string) bool { return among(pkg, packagesOf("tests and tools")) }

// isForTests reports whether a package is used by tests alone.
func isForTests(pkg string) bool { return isTests(pkg) || among(pkg, testKits) }

// loadTree returns every package of the repository that the rules are about. They are parsed
// once for all tests, which do not change them.
func loadTree(t *testing.T) []*pkg {
	t.Helper()

	pkgs, err := tree()
	if err != nil {
		t.Fatalf("read the sources: %v", err)
	}

	return pkgs
}

var tree = sync.OnceValues(func() ([]*pkg, error) {
	var pkgs []*pkg
	for _, root := range roots {
		top := filepath.Join("..", root)
		if _, err := os.Stat(top); os.IsNotExist(err) {
			continue
		}

		err := filepath.WalkDir(top, func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if d.Name() == "testdata" || dir != top && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}

			sources, err := readSources(dir)
			if err != nil || len(sources) == 0 {
				return err
			}

			rel, err := filepath.Rel("..", dir)
			if err != nil {
				return err
			}

			p, err := load(filepath.ToSlash(rel), sources)
			if err != nil {
				return err
			}

			pkgs = append(pkgs, p)

			return nil
		})
		if err != nil {
			return nil, err
		}
	}

	return pkgs, nil
})

// readSources returns the Go files of a folder that are not tests.
func readSources(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	sources := map[string]string{}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}

		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}

		sources[e.Name()] = string(text)
	}

	return sources, nil
}

// architecture returns ARCHITECTURE.md, "" while it is not written.
func architecture(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "ARCHITECTURE.md"))
	if os.IsNotExist(err) {
		return ""
	}

	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// TestHouseRules applies every rule to every package.
func TestHouseRules(t *testing.T) {
	t.Parallel()
	pkgs := loadTree(t)
	if len(pkgs) < 6 {
		t.Fatalf("found only %d packages: the test looks in the wrong place", len(pkgs))
	}

	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()

			for _, p := range pkgs {
				for _, finding := range r.check(p) {
					t.Error(finding)
				}
			}
		})
	}
}

// TestImportsFollowTheLayers checks who imports whom.
func TestImportsFollowTheLayers(t *testing.T) {
	t.Parallel()
	pkgs := loadTree(t)
	text := architecture(t)
	lines := fencedBlock(text, "sideways imports")
	if lines == nil {
		t.Fatal(`ARCHITECTURE.md has no fenced block titled "sideways imports"`)
	}

	allowed, err := parseSideways(lines)
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range pkgs {
		for _, finding := range checkImports(p, allowed) {
			t.Error(finding)
		}
	}

	for _, finding := range staleSideways(pkgs, allowed) {
		t.Error(finding)
	}
}

// TestTablesNameWhatExists flags names in the tables above that no package has any more: a
// renamed package must not leave a rule behind that is about nothing.
func TestTablesNameWhatExists(t *testing.T) {
	t.Parallel()

	for _, finding := range staleNames(tableNames(), goFolders(t)) {
		t.Error(finding)
	}
}

// tableNames returns every package name and family that the tables mention, with its table.
func tableNames() map[string]string {
	names := map[string]string{}
	enter := func(table string, list []string) {
		for _, name := range list {
			names[name] = table
		}
	}

	for _, l := range layers {
		enter("layer "+l.name, l.packages)
	}

	for _, s := range strangers {
		enter("strangers", slices.Concat(s.from, s.never, s.but))
	}

	enter("adapters", adapters)
	enter("testKits", testKits)
	enter("readsClock", readsClock)
	enter("readsWall", readsWall)
	enter("readsEnviron", readsEnviron)
	enter("notPure", notPure)
	enter("thirdParty", slices.Collect(maps.Keys(thirdParty)))
	enter("hooks", slices.Collect(maps.Keys(hooks)))

	return names
}

// staleNames flags names and families that match no folder.
func staleNames(names map[string]string, folders []string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		exists := slices.ContainsFunc(folders, func(folder string) bool { return among(folder, []string{name}) })
		if !exists {
			found = append(found, fmt.Sprintf("internal/arch_test.go, %s: there is no package %s", names[name], name))
		}
	}

	return found
}

// goFolders returns every folder of the repository with Go files.
func goFolders(t *testing.T) []string {
	t.Helper()

	var folders []string
	for _, root := range append([]string{"sdk"}, roots...) {
		for _, name := range filesBelow(t, filepath.Join("..", root), ".go") {
			rel, err := filepath.Rel("..", filepath.Dir(name))
			if err != nil {
				t.Fatal(err)
			}

			folders = append(folders, filepath.ToSlash(rel))
		}
	}

	slices.Sort(folders)

	return slices.Compact(folders)
}

// filesBelow returns the files below a folder whose names end like this, without testdata and hidden folders.
func filesBelow(t *testing.T, top, suffix string) []string {
	t.Helper()

	var names []string

	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if d.IsDir() {
			if name != top && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
				return filepath.SkipDir
			}

			return nil
		}

		if strings.HasSuffix(d.Name(), suffix) {
			names = append(names, name)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return names
}
