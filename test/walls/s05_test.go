package walls_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"trainyard/internal/api"
)

// TestS05_AJobFileFullOfMistakesCostsLittle submits job files with tens of thousands of mistakes. The server looked for
// the remedy of each, which took it a minute. That it does so no longer is counted in internal/spec; here the
// attacker is told of the first mistakes only, and others are answered meanwhile.
func TestS05_AJobFileFullOfMistakesCostsLittle(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	mallory, alice := y.user(t, "mallory"), y.user(t, "alice")

	var keys, needs strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&keys, "gpsu%d: 1\n", i)
	}

	for i := range 900 {
		fmt.Fprintf(&needs, "---\nname: job-%d\nrun: x\nneeds: [jbo-%d, job-%d, job-%d]\n", i, i, (i+1)%900, (i+2)%900)
	}

	for name, file := range map[string]string{"unknown keys": keys.String(), "unknown needs and circles": needs.String()} {
		a := mallory.call(t, http.MethodPost, "/api/v1/jobs", api.SubmitRequest{File: file})

		last := api.Problem{}
		if n := len(a.problem.Errors); n > 0 {
			last = a.problem.Errors[n-1]
		}

		if a.status != http.StatusUnprocessableEntity || len(a.problem.Errors) != 101 || last.Code != "too_many_errors" {
			t.Errorf("%s: %d with %d errors, the last of which is %+v", name, a.status, len(a.problem.Errors), last)
		}
	}

	alice.submit(t, script("true"))
}
