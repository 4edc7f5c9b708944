package agent

import (
	"errors"

	"trainyard/internal/fault"
)

// noteProblem logs what goes wrong at a place once, again when it changes, and when
// it is over, so that a server that is away for a night leaves two lines and
// not a million.
func (a *Agent) noteProblem(place string, err error) {
	text := ""
	var f *fault.Error
	if errors.As(err, &f) {
		text = f.Code // the sentence may name a connection, which is another each time
	} else if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	before := a.problems[place]
	if a.problems[place] = text; text == "" {
		delete(a.problems, place)
	}
	a.mu.Unlock()
	switch text {
	case before:
	case "":
		a.log.Info("works again", "what", place)
	default:
		a.log.Warn("does not work, is tried again", "what", place, "error", err)
	}
}
