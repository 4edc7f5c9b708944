package id

import "strings"

// lastSuffix after a name, or alone, means the newest job.
const lastSuffix = "@last"

// MaxHandle is the greatest length of a handle.
const MaxHandle = MaxName + len(lastSuffix)

// Handle is what people type for a job: its id (j7), its name (resnet50), the newest job of a name
// (resnet50@last) or the newest of their own (@last). Of the zero value nothing is known.
type Handle struct {
	Job  Job    // the id, if it is one
	Name string // else the name, "" for any
	Last bool   // the newest, whatever its state
}

// ParseHandle reads a handle, and returns false for a text that is none. What looks like an id is one: a job that is
// called j7 is found as j7@last.
func ParseHandle(text string) (Handle, bool) {
	if _, ok := Job(text).Number(); ok {
		return Handle{Job: Job(text)}, true
	}

	name, last := strings.CutSuffix(text, lastSuffix)
	h := Handle{Name: name, Last: last}

	return h, Name(name) || name == "" && last
}

// String writes the handle as ParseHandle reads it.
func (h Handle) String() string {
	switch {
	case h.Job != "":
		return string(h.Job)
	case h.Last:
		return h.Name + lastSuffix
	}

	return h.Name
}
