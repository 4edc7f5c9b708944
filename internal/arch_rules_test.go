package arch_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"trainyard/test/markdown"
)

// pkg is one package as its sources say.
type pkg struct {
	path  string // below the module: internal/job
	name  string
	fset  *token.FileSet
	files []*ast.File
	lines map[string]int // of code, of each file
	info  *types.Info
	scope *types.Scope
}

// load parses a package. It resolves names within the package and of its
// imports, but does not read the imports: what they hold is not asked for.
func load(pkgPath string, sources map[string]string) (*pkg, error) {
	p := &pkg{
		path: pkgPath, fset: token.NewFileSet(), lines: map[string]int{},
		info: &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}},
	}

	for _, name := range slices.Sorted(maps.Keys(sources)) {
		full := pkgPath + "/" + name
		f, err := parser.ParseFile(p.fset, full, sources[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}

		p.files = append(p.files, f)
		p.lines[full] = codeLines(sources[name])
		p.name = f.Name.Name
	}

	conf := types.Config{
		Importer:    emptyImporter{},
		FakeImportC: true,
		Error:       func(error) {}, // imports are empty, and files of several systems are seen at once
	}

	checked, _ := conf.Check(module+"/"+pkgPath, p.fset, p.files, p.info)
	p.scope = checked.Scope()

	return p, nil
}

// emptyImporter gives every import a package with a name and nothing in it.
type emptyImporter struct{}

var versionSuffix = regexp.MustCompile(`^v[0-9]+$|\.v[0-9]+$`)

func (emptyImporter) Import(importPath string) (*types.Package, error) {
	name := path.Base(importPath)
	if strings.HasPrefix(name, "v") && versionSuffix.MatchString(name) {
		name = path.Base(path.Dir(importPath))
	}

	name = strings.TrimPrefix(versionSuffix.ReplaceAllString(name, ""), "go-")
	imported := types.NewPackage(importPath, name)
	imported.MarkComplete()

	return imported, nil
}

// at says where something is.
func (p *pkg) at(n ast.Node, format string, args ...any) string {
	pos := p.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d: %s", pos.Filename, pos.Line, fmt.Sprintf(format, args...))
}

// imports returns every imported path with the place of its import.
func (p *pkg) imports() map[string]*ast.ImportSpec {
	all := map[string]*ast.ImportSpec{}
	for _, f := range p.files {
		for _, spec := range f.Imports {
			all[strings.Trim(spec.Path.Value, `"`)] = spec
		}
	}

	return all
}

// each visits every node of the package.
func (p *pkg) each(visit func(ast.Node)) {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if n != nil {
				visit(n)
			}

			return true
		})
	}
}

// imported returns the package and name of a selector such as time.Now.
func (p *pkg) imported(e ast.Expr) (importPath, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}

	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	if pkgName, ok := p.info.Uses[x].(*types.PkgName); ok {
		return pkgName.Imported().Path(), sel.Sel.Name
	}

	return "", ""
}

// uses flags every use of names of an imported package.
func (p *pkg) uses(importPath string, names []string, why string) []string {
	var found []string
	p.each(func(n ast.Node) {
		if e, ok := n.(ast.Expr); ok {
			if from, name := p.imported(e); from == importPath && slices.Contains(names, name) {
				found = append(found, p.at(n, "%s.%s: %s", path.Base(importPath), name, why))
			}
		}
	})

	return found
}

// rules are those that look at one package alone.
var rules = []struct {
	name  string
	check func(*pkg) []string
}{
	{"every package has a layer", checkHasLayer},
	{"no package is called util or the like", checkName},
	{"every package has exactly one package comment", checkComment},
	{"files are small", checkSize},
	{"no init", checkInit},
	{"no mutable package variable", checkVariables},
	{"no package variable is changed", checkMutation},
	{"only clock reads the clock", checkClock},
	{"wall time is for those who need it", checkWall},
	{"the environment is read at the edges", checkEnviron},
	{"nothing prints", checkPrint},
	{"no global logger", checkLogger},
	{"pure packages import nothing that acts", checkPureImports},
	{"pure packages start nothing", checkPureConcurrency},
	{"pure packages roll no dice of their own", checkPureChance},
	{"an hour is not written as a number", checkHours},
}

func checkHasLayer(p *pkg) []string {
	if layerOf(p.path) < 0 {
		return []string{p.path + ": is in no layer: enter it in the table of internal/arch_test.go"}
	}

	return nil
}

func checkName(p *pkg) []string {
	forbidden := []string{
		"util",
		"utils",
		"common",
		"helper",
		"helpers",
		"type",
		"types",
		"model",
		"models",
		"misc",
		"shared",
		"lib",
		"base",
	}

	if slices.Contains(forbidden, p.name) || slices.Contains(forbidden, path.Base(p.path)) {
		return []string{p.path + ": name it by what it does"}
	}

	return nil
}

func checkComment(p *pkg) []string {
	var documented []string
	var found []string
	for _, f := range p.files {
		if f.Doc == nil {
			continue
		}

		documented = append(documented, p.fset.Position(f.Package).Filename)

		if p.name != "main" && !strings.HasPrefix(f.Doc.Text(), "Package "+p.name+" ") {
			found = append(found, p.at(f, "the package comment begins with %q", "Package "+p.name))
		}
	}

	if len(documented) != 1 {
		found = append(
			found,
			fmt.Sprintf("%s: %d package comments %v, want exactly one", p.path, len(documented), documented),
		)
	}

	return found
}

func checkSize(p *pkg) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(p.lines)) {
		if p.lines[name] > maxCodeLines {
			found = append(found, fmt.Sprintf("%s: %d lines of code, at most %d", name, p.lines[name], maxCodeLines))
		}
	}

	return found
}

func checkInit(p *pkg) []string {
	var found []string
	p.each(func(n ast.Node) {
		if fn, ok := n.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			found = append(found, p.at(fn, "init: do it where it is needed, in sight of the caller"))
		}
	})

	return found
}

// checkVariables lets package variables be tables, errors, patterns, embedded
// files and checks of interfaces, and nothing else.
func checkVariables(p *pkg) []string {
	var found []string
	for _, f := range p.files {
		for _, decl := range f.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}

			for _, spec := range group.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					found = append(found, p.checkVariable(group, v)...)
				}
			}
		}
	}

	return found
}

func (p *pkg) checkVariable(group *ast.GenDecl, v *ast.ValueSpec) []string {
	if embedded(group.Doc) || embedded(v.Doc) {
		return nil
	}

	var found []string
	for i, name := range v.Names {
		switch {
		case name.Name == "_":
		case p.name == "main" && (name.Name == "version" || name.Name == "commit"): // set by the linker
		case i >= len(v.Values):
			found = append(found, p.at(name, "variable %s: hold state in a struct that is passed", name.Name))
		case isForTests(p.path) && p.isFlag(v.Values[i]): // go test reads flags before any test runs
		case !p.fixed(v.Values[i]):
			found = append(
				found,
				p.at(
					name,
					"variable %s: a package variable is a table, an error or a pattern; make it a constant or hold it in a struct",
					name.Name,
				),
			)
		}
	}

	return found
}

func embedded(doc *ast.CommentGroup) bool {
	return doc != nil &&
		slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// makers return values that nobody changes.
var makers = []string{
	"errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer", "time.Date", "template.Must",
	"fault.New", "slices.Concat", "append",
	"makeFields", // the job file's table, put together from its parts
}

// isFlag reports whether an expression declares a flag of the command line.
func (p *pkg) isFlag(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}

	from, _ := p.imported(call.Fun)

	return from == "flag"
}

// fixed reports whether an expression makes a value that is not changed later.
func (p *pkg) fixed(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		from, name := p.imported(e.Type)
		return from != "sync/atomic" && (from != "sync" || name == "Pool")
	case *ast.UnaryExpr:
		return e.Op == token.AND && p.fixed(e.X)
	case *ast.ParenExpr:
		return p.fixed(e.X)
	case *ast.CallExpr:
		if id, ok := e.Fun.(*ast.Ident); ok {
			return slices.Contains(makers, id.Name)
		}

		from, name := p.imported(e.Fun)

		return slices.Contains(makers, path.Base(from)+"."+name)
	}

	return false
}

// checkMutation flags whatever changes a package variable, wherever it is declared.
func checkMutation(p *pkg) []string {
	var found []string
	flag := func(n ast.Node, e ast.Expr) {
		if name := p.packageVariable(e); name != "" && !slices.Contains(hooks[p.path], name) {
			found = append(found, p.at(n, "changes the package variable %s", name))
		}
	}

	p.each(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, left := range n.Lhs {
					flag(n, left)
				}
			}
		case *ast.IncDecStmt:
			flag(n, n.X)
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				flag(n, n.Key)
				flag(n, n.Value)
			}
		case *ast.UnaryExpr:
			if _, bare := n.X.(*ast.Ident); bare && n.Op == token.AND {
				flag(n, n.X)
			}
		case *ast.CallExpr:
			if len(n.Args) > 0 && p.changesFirst(n.Fun) {
				flag(n, n.Args[0])
			}
		}
	})

	return found
}

// changesFirst reports whether a function changes its first argument in place.
func (p *pkg) changesFirst(fun ast.Expr) bool {
	if id, ok := fun.(*ast.Ident); ok {
		return slices.Contains([]string{"delete", "clear", "copy"}, id.Name)
	}

	from, name := p.imported(fun)
	switch from {
	case "sort":
		return !strings.HasPrefix(name, "Search") && !strings.Contains(name, "IsSorted")
	case "slices":
		return name == "Sort" || name == "SortFunc" || name == "SortStableFunc" || name == "Reverse"
	case "maps":
		return name == "Copy" || name == "DeleteFunc" || name == "Insert"
	}

	return false
}

// packageVariable returns the package variable at the root of x, x.f, x[i] or *x,
// of this package or another, "" if there is none.
func (p *pkg) packageVariable(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		if v, ok := p.info.Uses[e].(*types.Var); ok && v.Parent() == p.scope {
			return e.Name
		}
	case *ast.SelectorExpr:
		if from, name := p.imported(e); from != "" {
			return from + "." + name
		}

		return p.packageVariable(e.X)
	case *ast.IndexExpr:
		return p.packageVariable(e.X)
	case *ast.SliceExpr:
		return p.packageVariable(e.X)
	case *ast.StarExpr:
		return p.packageVariable(e.X)
	case *ast.ParenExpr:
		return p.packageVariable(e.X)
	}

	return ""
}

func checkClock(p *pkg) []string {
	if among(p.path, readsClock) || isForTests(p.path) {
		return nil
	}

	return p.uses(
		"time",
		[]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"},
		"time comes from internal/clock, or as an argument",
	)
}

// checkWall keeps server and agent from the clock that anybody can set.
func checkWall(p *pkg) []string {
	if among(p.path, readsWall) || isForTests(p.path) {
		return nil
	}

	return p.uses(module+"/internal/clock", []string{"Wall"},
		"a step of this clock must change nothing: use the clock.Clock you were given, or clock.NewSteady")
}

// checkHours flags the number of seconds, milliseconds, … of an hour: times are converted by package
// time, and money by package money. A price that is multiplied by hand is a price of another unit by
// mistake.
func checkHours(p *pkg) []string {
	if isForTests(p.path) {
		return nil
	}

	var found []string
	p.each(func(n ast.Node) {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.INT && lit.Kind != token.FLOAT {
			return
		}

		file := p.fset.Position(n.Pos()).Filename
		if _, allowed := writesHours[file]; !allowed && hourOf(lit) {
			found = append(found, p.at(n, "%s is an hour in another unit: use time.Hour or the methods of package money", lit.Value))
		}
	})

	return found
}

// hourOf reports whether a number is an hour in seconds, milliseconds, microseconds or nanoseconds.
func hourOf(lit *ast.BasicLit) bool {
	value := constant.MakeFromLiteral(lit.Value, lit.Kind, 0)
	for unit := int64(3600); unit <= 3600*1e9; unit *= 1000 {
		if constant.Compare(value, token.EQL, constant.MakeInt64(unit)) {
			return true
		}
	}

	return false
}

func checkEnviron(p *pkg) []string {
	if among(p.path, readsEnviron) || isForTests(p.path) {
		return nil
	}

	return p.uses("os", []string{"Getenv", "LookupEnv", "Environ", "Setenv", "Unsetenv", "Clearenv", "ExpandEnv"},
		"the environment is read in cmd, cli and agent alone")
}

func checkPrint(p *pkg) []string {
	if isForTests(p.path) {
		return nil
	}

	found := p.uses("fmt", []string{"Print", "Printf", "Println"}, "write to the io.Writer you were given")
	p.each(func(n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok {
			if id, ok := call.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
				if _, builtin := p.info.Uses[id].(*types.Builtin); builtin {
					found = append(found, p.at(n, "%s: write to the io.Writer you were given", id.Name))
				}
			}
		}
	})

	return found
}

func checkLogger(p *pkg) []string {
	if isForTests(p.path) {
		return nil
	}

	found := p.uses("log/slog", []string{
		"Default", "SetDefault", "Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext",
		"Error", "ErrorContext", "Log", "LogAttrs", "With",
	}, "use the *slog.Logger you were given")

	return append(found, p.uses("log", []string{
		"Default",
		"Print",
		"Printf",
		"Println",
		"Fatal",
		"Fatalf",
		"Fatalln",
		"Panic",
		"Panicf",
		"Panicln",
		"SetOutput",
		"SetFlags",
		"SetPrefix",
	}, "use the *slog.Logger you were given")...)
}

// acting are the standard packages that do something, know the machine, or guard
// against others that do. net/netip and net/url only read and write text.
var acting = []string{
	"context",
	"os",
	"os/*",
	"net",
	"net/*",
	"database/sql",
	"database/sql/*",
	"log",
	"log/*",
	"sync",
	"sync/*",
	"syscall",
	"syscall/*",
	"runtime",
	"runtime/*",
	"unsafe",
	"plugin",
	"testing",
	"testing/*",
	"flag",
	"expvar",
	"crypto/rand",
	"crypto/tls",
	"crypto/x509",
	"math/rand",
	"io/ioutil",
	"path/filepath",
	"time/tzdata",
}

func checkPureImports(p *pkg) []string {
	if !isPure(p.path) {
		return nil
	}

	var found []string
	for name, spec := range p.imports() {
		first, _, _ := strings.Cut(name, "/")
		switch {
		case first == module:
		case strings.Contains(first, "."):
			if !slices.Contains(thirdParty[p.path], name) {
				found = append(found, p.at(spec, "%s is pure: it may not import the module %s", p.path, name))
			}
		case name == "testing" && among(p.path, testKits): // only tests import these
		case among(name, acting) && name != "net/netip" && name != "net/url":
			found = append(found, p.at(spec, "%s is pure: it may not import %s", p.path, name))
		}
	}

	return found
}

func checkPureConcurrency(p *pkg) []string {
	if !isPure(p.path) {
		return nil
	}

	var found []string
	p.each(func(n ast.Node) {
		what := ""

		switch n := n.(type) {
		case *ast.GoStmt:
			what = "starts a goroutine"
		case *ast.SelectStmt:
			what = "selects"
		case *ast.ChanType:
			what = "has a channel"
		case *ast.SendStmt:
			what = "sends"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				what = "receives"
			}
		}

		if what != "" {
			found = append(found, p.at(n, "%s is pure, but %s", p.path, what))
		}
	})

	return found
}

// checkPureChance lets pure packages use a source they were given, not the global one,
// and not the machine's time zone.
func checkPureChance(p *pkg) []string {
	if !isPure(p.path) {
		return nil
	}

	found := p.uses("time", []string{"Local", "LoadLocation"}, "the time zone of the machine is no input of a decision")
	constructors := []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}
	p.each(func(n ast.Node) {
		if e, ok := n.(ast.Expr); ok {
			if from, name := p.imported(e); from == "math/rand/v2" && !slices.Contains(constructors, name) {
				found = append(found, p.at(n, "rand.%s: chance comes from a seeded source that is passed in", name))
			}
		}
	})

	return found
}

// sideways is the list of imports within a layer: who, whom. Names may be families.
type sideways []struct{ from, to string }

// parseSideways reads lines such as "place/baseline -> place, queue". A name is
// below internal/ unless it begins with cmd or test.
func parseSideways(lines []string) (sideways, error) {
	var all sideways

	for _, line := range lines {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}

		from, to, ok := strings.Cut(strings.ReplaceAll(line, "→", "->"), "->")
		if !ok {
			return nil, fmt.Errorf("sideways imports: %q is not of the form: package -> package, package", line)
		}

		for one := range strings.SplitSeq(to, ",") {
			all = append(all, struct{ from, to string }{full(from), full(one)})
		}
	}

	return all, nil
}

// full returns a package's path below the module.
func full(name string) string {
	name = strings.Trim(strings.TrimSpace(name), "`")
	first, _, _ := strings.Cut(name, "/")
	if first == "internal" || first == "cmd" || first == "test" {
		return name
	}

	return "internal/" + name
}

func (s sideways) allow(from, to string) bool {
	return slices.ContainsFunc(s, func(e struct{ from, to string }) bool {
		return among(from, []string{e.from}) && among(to, []string{e.to})
	})
}

// checkImports compares a package's imports of ours with the layers.
func checkImports(p *pkg, allowed sideways) []string {
	var found []string
	from := layerOf(p.path)

	imports := p.imports()
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		target, ours := strings.CutPrefix(name, module+"/")
		if !ours || from < 0 {
			continue
		}

		if why := refused(p.path, target, from, allowed); why != "" {
			found = append(found, p.at(imports[name], "%s imports %s: %s", p.path, target, why))
		}
	}

	return found
}

// refused says why a package may not import another of ours, "" if it may.
func refused(pkg, target string, from int, allowed sideways) string {
	to := layerOf(target)
	wiring := among(pkg, packagesOf("commands")) || isForTests(pkg)

	for _, s := range strangers {
		if among(pkg, s.from) && among(target, s.never) && !among(target, s.but) {
			return "they do not know each other; talk over the API"
		}
	}

	switch {
	case to < 0:
		return "it is in no layer"
	case among(target, testKits) && !isForTests(pkg):
		return "it is for tests alone"
	case among(target, adapters) && !wiring && !allowed.allow(pkg, target):
		return "it is an adapter, which the wiring in cmd/trainyard and tests know alone"
	case to > from:
		return "its layer " + layers[to].name + " is above " + layers[from].name
	case to == from && !isForTests(pkg) && !allowed.allow(pkg, target):
		return "both are in the layer " + layers[from].name + ", and ARCHITECTURE.md does not list it under sideways imports"
	}

	return ""
}

// staleSideways flags entries that no import needs.
func staleSideways(pkgs []*pkg, allowed sideways) []string {
	var found []string
	for _, entry := range allowed {
		used := slices.ContainsFunc(pkgs, func(p *pkg) bool {
			if !among(p.path, []string{entry.from}) {
				return false
			}

			for name := range p.imports() {
				if target, ours := strings.CutPrefix(name, module+"/"); ours && among(target, []string{entry.to}) {
					return true
				}
			}

			return false
		})

		if !used {
			found = append(
				found,
				fmt.Sprintf("ARCHITECTURE.md: sideways import %s -> %s: nobody needs it", entry.from, entry.to),
			)
		}
	}

	return found
}

// fencedBlock returns the lines of the fenced block with this title: in the
// fence's own line, or in the last line of text before it. Nil if there is none.
func fencedBlock(text, title string) []string {
	for _, b := range markdown.Blocks(text) {
		if strings.Contains(strings.ToLower(b.Info+"\n"+b.Before), title) {
			return append([]string{}, b.Body...)
		}
	}

	return nil
}
