// Package spec reads and writes job files.
//
// It turns the YAML that a researcher writes into job.Spec values and finds
// every mistake of a file at once, each with its line, its column and the way
// to fix it. One table of fields drives the parser, the writer, the JSON
// Schema for editors and the reference page. It reads no file, no environment
// and no clock: the caller passes the text, the variables and the time. It
// never guesses: a key it does not know is an error, and so is a field that it
// would have to ignore. The server calls it for every submission, the command
// line for checking a file before sending it.
package spec

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// The limits on what a job file may hold.
const (
	maxFile    = 1 << 20   // bytes of a file
	maxJobs    = 1000      // jobs of a file
	maxCommand = 256 << 10 // bytes of run, and of setup
	maxEnv     = 64 << 10  // bytes of all names and values of env
	maxItems   = 1000      // entries of a list
	maxLine    = 200       // bytes of a value on one line
	maxGPUs    = 64        // a node's GPUs are kept as bits of one word
	maxNodes   = 1024
	maxRetry   = 100
	maxKept    = 1000
	maxRank    = 100 // of priority
)

// Options says what a file is read against.
type Options struct {
	// Env gives the values of variables that the file asks for with
	// env: {KEY: null}. Nil means that there are none, so that each is an error.
	Env func(key string) (string, bool)
	// Params gives values to parameters of the file, as a submitter writes them: lr=0.1. Nil means that there are none.
	Params map[string]string
	// AnyParams accepts a file whose parameters have no values yet.
	AnyParams bool
	// Now is the time that a deadline must lie after; zero means any deadline will do.
	Now time.Time
	// Location is where a deadline without a zone is meant; nil means UTC.
	Location *time.Location
}

// File is what a job file holds.
type File struct {
	Jobs []Entry // in the order of the file
}

// Entry is one job of a file.
type Entry struct {
	Spec     job.Spec
	Line     int      // where the job starts in the file
	Required []string // names in env that were null and took their value from Options.Env
	Notes    []Note   // what is accepted and not acted on as one might think
}

// Note is a sentence about something that is accepted, and where in the file that is.
type Note struct {
	Line int
	Text string
}

// Parse reads the text of a job file. The error is a fault.List with all
// mistakes in the order of the file; there is a File only without any.
func Parse(text []byte, opts Options) (*File, error) {
	r := &reader{opts: opts, fields: jobFields(), setParams: map[string]bool{}}
	if len(text) > maxFile {
		r.Add(fault.New(fault.Invalid, "too_large", "the job file must have at most %d bytes, got %d", maxFile, len(text)).
			WithRemedy("put long scripts and data into files of the working directory"))
		return nil, r.Sorted()
	}

	roots, complete := r.documents(text)

	var drafts []*draft
	for _, root := range roots {
		if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
			continue // nothing between two lines of ---
		}

		if !r.Structure(root) {
			complete = false
			continue
		}

		drafts = append(drafts, r.job(root))
	}

	if len(drafts) == 0 && r.Len() == 0 {
		r.Add(fault.New(fault.Invalid, "empty_file", "the job file contains no job").
			WithRemedy("write at least one line, such as run: python train.py"))
	}

	r.together(drafts, complete)
	r.unusedParams(drafts)

	if err := r.Sorted().OrNil(); err != nil {
		return nil, err
	}

	file := &File{}
	for _, d := range drafts {
		file.Jobs = append(file.Jobs, d.entry)
	}

	return file, nil
}

// reader collects the mistakes of one file.
type reader struct {
	yamlfile.Mistakes

	opts      Options
	fields    []field
	setParams map[string]bool // those of Options.Params that a job of the file has
}

// draft is a job while it is read.
type draft struct {
	entry     Entry
	at        map[string]*yaml.Node // the value of every field that is given, by path
	gpuCount  *job.Range            // from resources.gpu, as in A100:8
	missing   map[string]bool       // parameters that have no value because of a mistake, which was reported
	gpuMemory bool                  // resources.gpu gave a memory, as in 24GB..
}

// job reads one job. Fields that are not given keep their defaults.
func (r *reader) job(root *yaml.Node) *draft {
	d := &draft{at: map[string]*yaml.Node{"": root}}
	d.entry.Line = root.Line
	d.entry.Spec = job.Spec{
		Place: job.PlaceAny, Objective: job.ObjectiveBalanced, Grace: job.Duration(defaultGrace),
		Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000},
	}

	if root.Kind != yaml.MappingNode {
		r.Fail(root, "wrong_type", "", "a job must be lines of key: value, got "+yamlfile.Describe(root),
			"write at least one line, such as run: python train.py")
		return d
	}

	before := r.Len()
	r.mapping(d, root, "", r.fields)

	if _, given := d.at["run"]; !given {
		r.Fail(root, "missing_run", "run", "is required", "add a line such as run: python train.py")
	}

	r.resources(d)
	r.share(d)
	r.snapshot(d)
	r.python(d)
	r.sameGPU(d)
	r.target(d)
	r.metrics(d)
	r.late(d)
	r.speed(d)
	r.oom(d)
	r.secrets(d)
	r.avoided(d)
	r.after(d)
	r.references(d)

	if r.Len() == before {
		r.ranges(d)
		r.measured(d)
	}

	return d
}

// mapping reads the keys of a mapping that the table knows and reports the others.
func (r *reader) mapping(d *draft, n *yaml.Node, prefix string, fields []field) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		if at < 0 {
			if r.Full() {
				r.Skip() // its suggestion would be work for nothing
				continue
			}

			meant, remedy := r.intended(prefix, fields, key.Value)
			r.Fail(key, "unknown_key", yamlfile.Join(prefix, yamlfile.Shown(key.Value)), "unknown key", remedy)

			if meant == "run" {
				d.at[meant] = val // so that it is not reported as missing too
			}

			continue
		}

		f := &fields[at]
		v := value{r: r, d: d, n: val, f: f, path: yamlfile.Join(prefix, f.name)}
		d.at[v.path] = val

		v.read()
	}
}

// note keeps a sentence about something that is accepted and not acted on as one might think: the field of a path.
func (d *draft) note(path, sentence string) {
	n := Note{Line: d.entry.Line, Text: sentence}
	if at, given := d.at[path]; given {
		n.Line = at.Line
	}

	if !slices.Contains(d.entry.Notes, n) {
		d.entry.Notes = append(d.entry.Notes, n)
	}
}

// ranges notes what a range means: not every policy lets runs grow and shrink.
func (r *reader) ranges(d *draft) {
	res := d.entry.Spec.Resources
	for _, c := range []struct {
		path  string
		count job.Range
	}{{"resources.gpus", res.GPUs}, {"resources.nodes", res.Nodes}} {
		if c.count.Min != c.count.Max {
			d.note(c.path, c.path+": a run takes as many of "+c.count.String()+
				" as are free when it starts; only policies for elastic jobs change that later.")
		}
	}
}

// target checks that the target of a job is one that can be reached.
func (r *reader) target(d *draft) {
	n, given := d.at["target"]
	if !given || n.Kind != yaml.MappingNode {
		return
	}

	const example = "write it as in target: {metric: val_loss, at_most: 0.35}"
	_, metric := d.at["target.metric"]
	_, most := d.at["target.at_most"]
	_, least := d.at["target.at_least"]

	if !metric {
		r.Fail(n, "missing_value", "target.metric", "is required", example)
	}

	if most == least {
		given := "neither"
		if most {
			given = "both"
		}

		r.Fail(n, "bad_value", "target", "must have exactly one of at_most and at_least, got "+given, example)
	}
}

// late checks that there is a deadline to be late for.
func (r *reader) late(d *draft) {
	n, given := d.at["late_cost"]
	if _, has := d.at["deadline"]; given && !has {
		r.Fail(n, "missing_value", "deadline", "is required with late_cost, the cost of each hour past it",
			"add a line such as deadline: 2026-12-01T09:00, or remove late_cost")
	}
}

// oom checks that what is allowed after the job ran out of memory is possible.
func (r *reader) oom(d *draft) {
	s := &d.entry.Spec

	if n, given := d.at["on_oom.halve"]; given && s.OnOOM != nil && s.OnOOM.Halve != "" {
		if size, err := strconv.Atoi(s.Env[s.OnOOM.Halve]); err != nil || size <= 1 {
			r.Fail(n, "bad_value", "on_oom.halve", "must be a variable of env that is an integer of at least 2, got "+
				yamlfile.Quote(s.OnOOM.Halve), "add a line such as env: {BATCH_SIZE: 32}, and let the program read it")
		}
	}

	if n, given := d.at["on_oom.max_gpus"]; given && s.OnOOM != nil && s.OnOOM.MaxGPUs > 0 &&
		s.OnOOM.MaxGPUs <= s.Resources.GPUs.Min {
		r.Fail(n, "bad_value", "on_oom.max_gpus", fmt.Sprintf("must be more than the %d of resources.gpus, got %d",
			s.Resources.GPUs.Min, s.OnOOM.MaxGPUs), "raise it, or remove the line")
	}
}

// after checks that there is something to be after.
func (r *reader) after(d *draft) {
	s := &d.entry.Spec
	if n, given := d.at["after"]; given && d.at["needs"] == nil {
		r.Fail(n, "missing_value", "needs", "is required with after",
			"add a line such as needs: [prepare-data], or remove after")
	}

	if s.After == job.AfterSuccess {
		s.After = "" // what it is without the field
	}
}

// avoided refuses a node that the job shall run on and avoid.
func (r *reader) avoided(d *draft) {
	for _, name := range d.entry.Spec.Avoid {
		if slices.Contains(d.entry.Spec.Nodes, name) {
			r.Fail(d.at["avoid"], "conflict", "avoid", "must not name a node of nodes, got "+yamlfile.Quote(name),
				"remove it from nodes or from avoid")
		}
	}
}

// secrets refuses secrets that the program could not have, or that would not stay secret.
func (r *reader) secrets(d *draft) {
	s := &d.entry.Spec
	at := d.at["secrets"]
	seen := map[string]bool{}

	for _, entry := range s.Secrets {
		name, _ := job.SecretName(entry)
		if _, both := s.Env[name]; both {
			r.Fail(at, "conflict", "secrets", "must not name a variable of env, got "+yamlfile.Quote(name),
				"remove it from env or from secrets")
		}

		if seen[name] {
			r.Fail(at, "bad_value", "secrets", "must name each secret once, got "+yamlfile.Quote(name)+" twice",
				"remove one of them")
		}

		seen[name] = true
	}

	if s.RegistryAuth != "" && s.Image == "" {
		r.Fail(d.at["registry_auth"], "conflict", "registry_auth", "must not be given for a job without image",
			"add image, or remove registry_auth")
	}

	if c := s.Checkpoint; c != nil && c.Snapshot && len(s.Secrets) > 0 {
		r.Fail(at, "conflict", "secrets",
			"must be empty for a job with checkpoint.snapshot, because a snapshot of the program would contain them",
			"let the program save checkpoints itself, or do without the secrets")
	}
}

// got puts what was given into a message, as in `must be an integer, got "ten"`. Numbers
// need no quotes.
func got(s string) string {
	if _, isNumber := parseNumber(s); isNumber {
		return ", got " + s
	}

	return ", got " + yamlfile.Quote(s)
}
