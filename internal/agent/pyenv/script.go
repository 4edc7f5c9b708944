package pyenv

import (
	_ "embed"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/job"
)

//go:embed make.sh
var makeScript string

// prefixName is where an environment is in the directory that was made for it. Beside it there is the interpreter, if
// that was fetched.
const prefixName = "env"

// Prefix returns where the environment is, given the directory that was made for it.
func Prefix(dir string) string { return filepath.Join(dir, prefixName) }

// tool returns the program that makes the environment.
func (r *Request) tool() (string, error) {
	switch by := r.Builder(); {
	case by == job.BuilderConda && r.Tools.Conda == "":
		return "", failure("this node has none of micromamba, mamba and conda on the PATH of the job")
	case by == job.BuilderConda:
		return r.Tools.Conda, nil
	case r.Tools.UV != "":
		return r.Tools.UV, nil
	case by == job.BuilderUV:
		return "", failure("this node does not have uv on the PATH of the job")
	case len(r.Tools.Pythons) == 0:
		return "", failure("this node has neither uv nor python3 on the PATH of the job")
	}

	return "venv", nil
}

// Script returns the shell script that makes the environment in a directory. It is run in the working directory.
func (r *Request) Script(dir string) (string, error) {
	tool, err := r.tool()
	if err != nil {
		return "", err
	}

	method := filepath.Base(tool)

	switch {
	case r.Builder() == job.BuilderConda && method != "micromamba":
		method = "conda"
	case method == "uv" && r.Locked():
		method = "uv-lock"
	}

	source := r.File()

	if r.Locked() {
		source = path.Dir(r.UV)
	}

	var text strings.Builder
	set := func(name, value string) { text.WriteString(name + "=" + quote(value) + "\n") }
	set("method", method)
	set("tool", tool)
	set("version", r.Version)
	set("dir", dir)
	set("prefix", Prefix(dir))
	set("source", source)

	text.WriteString("set --")
	likely := r.Tools.candidates(r.Version)
	for _, p := range slices.Concat(likely, r.Tools.Pythons) { // the others are named if none of these is the right one
		text.WriteString(" " + quote(p))
	}

	text.WriteString("\npackages=" + strconv.Itoa(len(r.Packages)) + "\n")
	text.WriteString("list() { printf '%s\\n'")
	for _, p := range r.Packages {
		text.WriteString(" " + quote(p))
	}

	text.WriteString("; }\n")
	text.WriteString(makeScript)

	return text.String(), nil
}

// quote writes a text as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Environ returns an environment in which programs find the packages, given the directory that was made for them.
func (r *Request) Environ(env []string, dir string) []string {
	prefix := Prefix(dir)
	out := make([]string, 0, len(env)+2)
	hasPath := false

	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")

		switch name {
		case "PATH":
			hasPath = true
			out = append(out, "PATH="+filepath.Join(prefix, "bin")+":"+value)
		case "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV": // of another one
		default:
			out = append(out, entry)
		}
	}

	if !hasPath {
		out = append(out, "PATH="+filepath.Join(prefix, "bin"))
	}

	if r.Builder() == job.BuilderConda {
		return append(out, "CONDA_PREFIX="+prefix)
	}

	return append(out, "VIRTUAL_ENV="+prefix)
}
