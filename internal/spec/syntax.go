package spec

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// documents returns the top node of every document of the text, and whether
// the whole text could be read.
func (r *reader) documents(text []byte) ([]*yaml.Node, bool) {
	roots, complete := r.Documents(text, maxJobs+1)
	if len(roots) > maxJobs {
		r.Fail(roots[maxJobs], "too_large", "", fmt.Sprintf("the file must have at most %d jobs, got more", maxJobs),
			"split it into several files")
		return roots[:maxJobs], false
	}

	return roots, complete
}
