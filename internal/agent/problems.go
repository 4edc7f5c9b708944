package agent

import (
	"errors"

	"trainyard/internal/fault"
)

// noteProblem logs when an operation starts to fail, when its error changes and when it
// works again, instead of at every retry: a server that is down for a night leaves two
// lines in the log, not a million.
func (a *Agent) noteProblem(operation string, err error) {
	err = a.explain(err)
	text := ""
	var f *fault.Error
	if errors.As(err, &f) {
		text = f.Code // the sentence may name a connection, which differs each time
	} else if err != nil {
		text = err.Error()
	}

	a.mu.Lock()
	before := a.problems[operation]

	a.problems[operation] = text
	if text == "" {
		delete(a.problems, operation)
	}

	a.mu.Unlock()

	switch text {
	case before:
	case "":
		a.log.Info("operation recovered", "operation", operation)
	default:
		a.log.Warn("operation failed, will be retried", "operation", operation, "error", err)
	}
}
