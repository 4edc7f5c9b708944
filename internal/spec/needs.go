package spec

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// together checks what the jobs of a file say about each other. What a job
// needs is looked up only if the whole file could be read.
func (r *reader) together(drafts []*draft, complete bool) {
	byName := map[string]*draft{}

	for _, d := range drafts {
		name := d.entry.Spec.Name
		n, given := d.at["name"]
		if !given && len(drafts) > 1 {
			r.Fail(
				d.at[""],
				"missing_name",
				"name",
				"is required in a file with several jobs",
				"add a line such as name: prepare-data",
			)
		}

		if name == "" {
			continue
		}

		if first, taken := byName[name]; taken {
			r.Fail(
				n,
				"duplicate_name",
				"name",
				fmt.Sprintf("must be unique within the file, got %s, the name of the job in line %d", name, first.entry.Line),
				"give each job of the file its own name",
			)

			continue
		}

		byName[name] = d
	}

	r.recurring(drafts)

	if !complete {
		return
	}

	w := &walk{r: r, byName: byName, state: map[*draft]int{}}
	for _, d := range drafts {
		w.unknown(d)
	}

	for _, d := range drafts {
		w.visit(d)
	}

	r.arrays(drafts, byName)
}

// recurring checks what a file says about being submitted again and again.
func (r *reader) recurring(drafts []*draft) {
	for i, d := range drafts {
		s := &d.entry.Spec
		every, given := d.at["every"]

		if given && i > 0 {
			r.Fail(every, "conflict", "every", "must be in the first job of the file, for all of them", "move it there")
		}

		if n, has := d.at["overlap"]; has && !given {
			r.Fail(n, "missing_value", "every", "is required with overlap", "add a line such as every: 6h, or remove overlap")
		}

		if s.Overlap == job.OverlapSkip {
			s.Overlap = "" // what it is without the field
		}

		if drafts[0].entry.Spec.Every == "" {
			continue
		}

		if n, has := d.at["deadline"]; has {
			r.Fail(n, "conflict", "deadline", "must not be given with every, because it is the same for all times",
				"remove it, and give expect or max_duration")
		}

		for _, need := range s.Needs {
			if Outside(need) {
				r.Fail(needNode(d, need), "conflict", "needs", "must be jobs of this file with every, got "+need, "remove "+need)
			}
		}
	}
}

// walk follows the needs of the jobs in search of circles.
type walk struct {
	r      *reader
	byName map[string]*draft
	state  map[*draft]int // unseen, open, done
	path   []*draft
}

const (
	open = 1
	done = 2
)

// needNode is the place of a job's need in the file.
func needNode(d *draft, need string) *yaml.Node {
	n := d.at["needs"]
	for _, item := range n.Content {
		if item.Value == need {
			return item
		}
	}

	return n
}

// Outside reports whether a need that is not the name of a job of the file means one that was submitted before.
func Outside(need string) bool {
	h, ok := id.ParseHandle(need)
	return ok && (h.Job != "" || h.Last)
}

// unknown reports needs that no job of the file has for a name.
func (w *walk) unknown(d *draft) {
	for _, need := range d.entry.Spec.Needs {
		if _, ok := w.byName[need]; ok || Outside(need) {
			continue
		}
		if w.r.Full() {
			w.r.Skip()
			continue
		}

		var names []string
		for name := range w.byName {
			if name != d.entry.Spec.Name {
				names = append(names, name)
			}
		}

		remedy := "name a job of the same file, or one that was submitted before by its id or as " + need + "@last"
		if closest := w.r.Finder.Closest(need, names); closest != "" {
			remedy = "did you mean " + closest + "?"
		}

		w.r.Fail(needNode(d, need), "unknown_need", "needs", "must be names of jobs in this file, got "+need, remedy)
	}
}

// visit reports every need that leads back to a job on the way to it.
func (w *walk) visit(d *draft) {
	if w.state[d] != 0 {
		return
	}

	w.state[d] = open
	w.path = append(w.path, d)
	for _, need := range d.entry.Spec.Needs {
		next, ok := w.byName[need]
		switch {
		case !ok: // reported by unknown
		case w.r.Full() && w.state[next] == open:
			w.r.Skip() // its way round would be told to nobody
		case next == d:
			w.r.Fail(needNode(d, need), "cycle", "needs", "must not include the job itself, got "+need, "remove "+need)
		case w.state[next] == open:
			w.r.Fail(
				needNode(d, need),
				"cycle",
				"needs",
				"must not form a cycle, got "+w.circle(next),
				"remove one of these needs",
			)
		default:
			w.visit(next)
		}
	}

	w.path = w.path[:len(w.path)-1]
	w.state[d] = done
}

// circle tells the way from a job back to itself.
func (w *walk) circle(from *draft) string {
	var steps []string
	for _, d := range w.path {
		if d == from || len(steps) > 0 {
			steps = append(steps, d.entry.Spec.Name)
		}
	}

	return strings.Join(append(steps, from.entry.Spec.Name), " needs ")
}
