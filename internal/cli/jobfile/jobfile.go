// Package jobfile builds a submission from a job file on disk or from the flags of
// run, with variables and changes from the command line.
//
// It checks the file as the server will, so that mistakes are reported before
// anything is sent, and returns which directory must be uploaded. It sends nothing
// itself, and reads the environment through the function it is given. For a folder without a job file it writes
// one to begin with (starter.go). cli calls it for submit, run, validate and init.
package jobfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/spec"
)

// maxSize is a little more than the server takes, so that spec can say what is wrong.
const maxSize = 2 << 20

// Draft is a job file that is about to be submitted.
type Draft struct {
	Text    []byte
	Env     map[string]string // values of the variables that the file asks for
	Params  map[string]string // values of its parameters
	Workdir string            // folder to ship, "" if none
	Digest  string            // of the shipped folder
	Files   []string          // those of the folder that environments are made of
	Filled  bool              // the server has to fill in placeholders, or make an array
}

// Request is the call that hands the draft in, or asks what would happen.
func (d *Draft) Request(dryRun bool) api.SubmitRequest {
	return api.SubmitRequest{File: string(d.Text), Env: d.Env, Params: d.Params, Workdir: d.Digest, DryRun: dryRun}
}

// Changes is what the command line changes about the jobs of a file.
type Changes struct {
	Name            string
	Env             []string // KEY=VALUE, or KEY for the value of the own environment
	EnvFile         string
	Params          []string // PARAM=VALUE
	Priority, Retry *int     // nil changes nothing
}

// Maker makes drafts.
type Maker struct {
	LookupEnv func(key string) (string, bool)
	Now       time.Time
}

// Read reads a job file, or stdin for "-".
func Read(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, maxSize))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}

		return text, nil
	}

	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable("the job file", path, err)
	}

	defer func() { _ = f.Close() }()

	text, err := io.ReadAll(io.LimitReader(f, maxSize))
	if err != nil {
		return nil, unreadable("the job file", path, err)
	}

	return text, nil
}

func unreadable(what, path string, err error) error {
	kind := fault.Invalid
	if errors.Is(err, fs.ErrNotExist) {
		kind = fault.NotFound
	}

	short := err
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		short = e.Err // the message names the path already
	}

	return fault.New(kind, "file_unreadable", "%s %s cannot be read: %v", what, path, short).WithCause(err)
}

// Check checks a job file without a server: variables that it asks for need no value yet.
func Check(text []byte, now time.Time) (*spec.File, error) {
	file, err := spec.Parse(text, spec.Options{
		Env: func(string) (string, bool) { return "", true }, AnyParams: true, Now: now,
	})
	if err != nil {
		return nil, err
	}

	_, err = shipped(file, ".")

	return file, err
}

// Make checks a job file's text and applies the changes. Paths are relative to dir.
func (m Maker) Make(text []byte, dir string, ch Changes) (*Draft, error) {
	given, err := m.variables(ch)
	if err != nil {
		return nil, err
	}

	lookup := func(key string) (string, bool) {
		if value, ok := given[key]; ok {
			return value, true
		}

		return m.LookupEnv(key)
	}

	params, err := ch.params()
	if err != nil {
		return nil, err
	}

	file, err := spec.Parse(text, spec.Options{
		Env: lookup, Params: params, Now: m.Now, Location: m.Now.Local().Location(),
	})
	if err != nil {
		return nil, err
	}

	d := &Draft{Text: text, Env: map[string]string{}, Params: params}
	d.Workdir, err = shipped(file, dir)
	if err != nil {
		return nil, err
	}

	for _, e := range file.Jobs {
		for _, key := range e.Required {
			d.Env[key] = e.Spec.Env[key]
		}
	}

	d.Filled = len(params) > 0 || filled(file)
	d.Files = environmentFiles(file)

	changed, err := ch.apply(file, given)
	if err != nil || !changed {
		return d, err
	}

	d.Env, d.Params = nil, nil // the values are in the text now
	d.Text, err = render(file)
	if err != nil {
		return nil, err
	}

	_, err = spec.Parse(d.Text, spec.Options{Now: m.Now})

	return d, fault.WithoutPlace(err)
}

// filled reports whether jobs are arrays or have placeholders whose values the server puts in.
func filled(file *spec.File) bool {
	for i := range file.Jobs {
		s := &file.Jobs[i].Spec
		if s.Array != nil || len(job.Placeholders(s.Run)) > 0 {
			return true
		}

		for _, value := range s.Env {
			if len(job.Placeholders(value)) > 0 {
				return true
			}
		}
	}

	return false
}

// params returns the values of parameters.
func (ch Changes) params() (map[string]string, error) {
	var params map[string]string

	for _, entry := range ch.Params {
		name, value, assigned := strings.Cut(entry, "=")
		if !assigned || name == "" {
			return nil, fault.New(fault.Invalid, "bad_assignment", "--set must be PARAM=VALUE, got %q", entry).
				WithRemedy("write it as in --set lr=0.1")
		}

		if params == nil {
			params = map[string]string{}
		}

		params[strings.TrimPrefix(name, "params.")] = value
	}

	return params, nil
}

// apply changes the jobs and reports whether there was anything to change. A
// deadline without a zone is meant where the person is, which the server
// cannot know, so that it counts as a change.
func (ch Changes) apply(file *spec.File, given map[string]string) (bool, error) {
	if ch.Name != "" && len(file.Jobs) > 1 {
		return false, fault.New(fault.Invalid, "name_of_many", "a name can be given to one job, and this file has %d",
			len(file.Jobs)).
			WithRemedy("write the names into the file")
	}

	changed := len(given) > 0 || ch.Name != "" || ch.Priority != nil || ch.Retry != nil

	for i := range file.Jobs {
		s := &file.Jobs[i].Spec
		for key, value := range given {
			if s.Env == nil {
				s.Env = map[string]string{}
			}

			s.Env[key] = value
		}

		if ch.Name != "" {
			s.Name = ch.Name
		}

		if ch.Priority != nil {
			s.Priority = *ch.Priority
		}

		if ch.Retry != nil {
			s.Retry = *ch.Retry
		}

		changed = changed || s.Deadline != nil
	}

	return changed, nil
}

// render writes the jobs of a file as one text.
func render(file *spec.File) ([]byte, error) {
	var parts [][]byte
	for _, e := range file.Jobs {
		part, err := spec.Render(e.Spec)
		if err != nil {
			return nil, fmt.Errorf("write job file: %w", err)
		}

		parts = append(parts, part)
	}

	return bytes.Join(parts, []byte("---\n")), nil
}

// shipped returns the folder to ship: one for all jobs of a file.
func shipped(file *spec.File, dir string) (string, error) {
	found, written := "", ""

	for _, e := range file.Jobs {
		if e.Spec.Workdir == "" {
			continue
		}

		folder := e.Spec.Workdir
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}

		folder = filepath.Clean(folder)
		if found != "" && folder != found {
			return "", fault.List{
				{
					Kind:   fault.Invalid,
					Code:   "workdirs_differ",
					Field:  "workdir",
					Line:   e.Line,
					Column: 1,
					Message: fmt.Sprintf(
						"the jobs of one file share one working directory, and this one has %q beside %q",
						e.Spec.Workdir,
						written,
					),
					Remedy: "use a folder that holds both, or one file for each",
				},
			}
		}

		found, written = folder, e.Spec.Workdir
	}

	return found, nil
}

// variables returns what the file of variables and the entries give; the latter win.
func (m Maker) variables(ch Changes) (map[string]string, error) {
	given := map[string]string{}

	if ch.EnvFile != "" {
		text, err := os.ReadFile(ch.EnvFile)
		if err != nil {
			return nil, unreadable("the file of variables", ch.EnvFile, err)
		}
		if err := envLines(text, ch.EnvFile, given); err != nil {
			return nil, err
		}
	}

	for _, entry := range ch.Env {
		key, value, assigned := strings.Cut(entry, "=")
		if !assigned {
			var ok bool
			value, ok = m.LookupEnv(key)
			if !ok {
				return nil, fault.New(fault.Invalid, "missing_env", "the variable %s is not set in your environment", key).
					WithRemedy("set it, or write --env %s=VALUE", key)
			}
		}

		given[key] = value
	}

	return given, nil
}

// envLines reads lines of KEY=VALUE. Blank lines and those that begin with # are skipped;
// "export " before the name and quotes around the value are taken off.
func envLines(text []byte, path string, into map[string]string) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxSize)

	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}

		key, value, assigned := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !assigned {
			return &fault.Error{
				Kind: fault.Invalid, Code: "bad_env_file", Line: n, Column: 1,
				Message: "the file of variables " + path + " has a line that is not KEY=VALUE",
			}
		}

		if size := len(value); size >= 2 && (value[0] == '"' || value[0] == '\'') && value[size-1] == value[0] {
			value = value[1 : size-1]
		}

		into[strings.TrimSpace(key)] = value
	}

	return lines.Err()
}

// environmentFiles returns the files of the working directory that the Python environments of jobs are made of.
func environmentFiles(file *spec.File) []string {
	var files []string
	for i := range file.Jobs {
		if p := file.Jobs[i].Spec.Python; p != nil && p.File() != "" {
			files = append(files, filepath.ToSlash(filepath.Clean(p.File())))
		}
	}

	return files
}
