package job

import (
	"path"
	"strings"
)

// Python is the environment that a job's set-up and program run in: an interpreter and packages, made on the node
// before they start. At most one of Requirements, Packages, UV and Conda is given; without any there are no packages.
type Python struct {
	Version      string   `json:"version,omitempty"`      // of the interpreter, as in 3.11; "" for that of the node
	Requirements string   `json:"requirements,omitempty"` // path of a requirements file in the working directory
	Packages     []string `json:"packages,omitempty"`     // lines of such a file, given in the job file
	UV           string   `json:"uv,omitempty"`           // path of a uv.lock or pyproject.toml
	Conda        string   `json:"conda,omitempty"`        // path of an environment.yml
}

// LockFile is how the lock file of a project of uv is called.
const LockFile = "uv.lock"

// Locked reports whether the packages are those of a lock file.
func (p *Python) Locked() bool { return path.Base(p.UV) == LockFile }

// File returns the path of the file that says which packages there are, "" if the job file does.
func (p *Python) File() string { return p.Requirements + p.UV + p.Conda }

// Builder is what a node needs to make an environment.
type Builder string

// The builders.
const (
	BuilderNone   Builder = ""
	BuilderPython Builder = "python" // uv, or an interpreter with venv and pip
	BuilderUV     Builder = "uv"     // uv alone
	BuilderConda  Builder = "conda"  // micromamba, mamba or conda
)

// Builder returns what a node needs to make the environment, BuilderNone for nil.
func (p *Python) Builder() Builder {
	switch {
	case p == nil:
		return BuilderNone
	case p.Conda != "":
		return BuilderConda
	case p.UV != "":
		return BuilderUV
	}

	return BuilderPython
}

// PythonVersion reports whether a text is a version of Python 3 as jobs ask for one: 3.11 or 3.11.7.
func PythonVersion(text string) bool {
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != "3" {
		return false
	}

	for _, p := range parts {
		if p == "" || len(p) > 3 || strings.Trim(p, "0123456789") != "" || len(p) > 1 && p[0] == '0' {
			return false
		}
	}

	return true
}

// VersionFits reports whether an interpreter may be what a job asks for. What is known of it is 3.11, which may be
// 3.11.7.
func VersionFits(have, want string) bool {
	return want == "" || have == want || strings.HasPrefix(want, have+".")
}

// textBytes is how much text it holds.
func (p *Python) textBytes() int {
	if p == nil {
		return 0
	}

	total := len(p.Version) + len(p.Requirements) + len(p.UV) + len(p.Conda)
	for _, line := range p.Packages {
		total += len(line)
	}

	return total
}
