package fleet

import (
	"strings"

	"trainyard/internal/job"
)

// Environments says with what a node makes Python environments: programs that its jobs find on their PATH.
type Environments struct {
	UV      string `json:"uv,omitempty" maxLength:"100" doc:"uv, if it is there"`
	Pythons string `json:"pythons,omitempty" maxLength:"500" doc:"interpreters that have venv and pip, as in Python 3.11, 3.12"`
	Conda   string `json:"conda,omitempty" maxLength:"100" doc:"micromamba, mamba or conda, if one is there"`
}

// pythonPrefix is what Pythons begins with.
const pythonPrefix = "Python "

// PythonsOf writes versions of interpreters as Environments has them.
func PythonsOf(versions []string) string {
	if len(versions) == 0 {
		return ""
	}

	return pythonPrefix + strings.Join(versions, ", ")
}

// Builds says whether the node can make an environment by a builder with an interpreter of a version, "" for any. Where
// there is uv, other versions than those of the node are fetched by it.
func (inv *Inventory) Builds(by job.Builder, version string) Ability {
	e := inv.Environments

	switch {
	case e == nil:
		return Ability{Reason: "its agent builds no Python environments"}
	case by == job.BuilderConda && e.Conda == "":
		return Ability{Reason: "it has none of micromamba, mamba and conda"}
	case by == job.BuilderUV && e.UV == "":
		return Ability{Reason: "it does not have uv"}
	case by != job.BuilderPython || e.UV != "":
		return Ability{OK: true}
	case e.Pythons == "":
		return Ability{Reason: "it has neither uv nor a Python with venv and pip"}
	}

	for have := range strings.SplitSeq(strings.TrimPrefix(e.Pythons, pythonPrefix), ", ") {
		if job.VersionFits(have, version) {
			return Ability{OK: true}
		}
	}

	return Ability{Reason: "it has no uv, and of Python only " + strings.TrimPrefix(e.Pythons, pythonPrefix)}
}
