package job

import (
	"fmt"
	"strconv"
	"strings"
)

// Diagram returns the life of a job as a Mermaid state diagram.
func Diagram() string {
	return diagram(States(), Events(), transitions, "submit")
}

// RunDiagram returns the life of a run as a Mermaid state diagram.
func RunDiagram() string {
	return diagram(RunStates(), RunEvents(), runTransitions, string(EventPlace))
}

// diagram draws a table of transitions. The first state is the initial one, entered by the
// event begin; states without transitions are final. Events between the same two states share
// an arrow.
func diagram[S, E ~string](states []S, events []E, table map[S]map[E]S, begin string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "stateDiagram-v2\n    [*] --> %s: %s\n", states[0], begin)
	for _, from := range states {
		for _, to := range states {
			var by []string
			for _, ev := range events {
				if got, ok := table[from][ev]; ok && got == to {
					by = append(by, string(ev))
				}
			}

			if len(by) > 0 {
				fmt.Fprintf(&out, "    %s --> %s: %s\n", from, to, strings.Join(by, ", "))
			}
		}
	}

	for _, s := range states {
		if len(table[s]) == 0 {
			fmt.Fprintf(&out, "    %s --> [*]\n", s)
		}
	}

	return out.String()
}

// CatalogueTable returns the failure catalogue as a Markdown table.
func CatalogueTable() string {
	var out strings.Builder
	out.WriteString("| cause | meaning | what happens next | final status |\n| --- | --- | --- | --- |\n")

	for _, h := range Catalogue() {
		fmt.Fprintf(&out, "| `%s` | %s | %s | `%s` |\n", h.Cause, h.Meaning, h.words(), h.Status)
	}

	return out.String()
}

// words says what happens next.
func (h Handling) words() string {
	var words string

	switch h.Next {
	case NextRetry:
		words = "retried up to the job's `retry`"
	case NextElsewhere:
		words = "retried on another node, at most " + times(h.Limit)
	case NextEscalate:
		words = "retried on a node with more memory, at most " + times(h.Limit) + ", if there is one"
	case NextRequeue:
		words = "requeued at once"
	case NextGiveUp:
		words = "the job ends"
	}

	if h.Backoff {
		words += ", with increasing delays"
	}

	if h.Asks() {
		words += "; then its owner is asked"
	}

	return words
}

func times(n int) string {
	if n == 1 {
		return "once"
	}

	return strconv.Itoa(n) + " times"
}

// StatusTable returns the words that people see as a Markdown table.
func StatusTable() string {
	var out strings.Builder
	out.WriteString("| status | meaning | state |\n| --- | --- | --- |\n")

	for _, w := range StatusWords() {
		fmt.Fprintf(&out, "| `%s` | %s | `%s` |\n", w.Status, w.Meaning, w.State)
	}

	return out.String()
}

// StatusWord is one of the words that people see, with the state behind it.
type StatusWord struct {
	Status  Status
	State   State
	Meaning string
}

// StatusWords lists every word that people see, in the order of a job's life.
func StatusWords() []StatusWord {
	means := map[State]string{
		Pending:    "queued for a node, or waiting for the jobs it needs",
		Starting:   "placed; its nodes fetch its files and run its set-up",
		Running:    "its program runs",
		Recovering: "a run ended early; queued to be retried",
		Pausing:    "being paused; its program is being stopped",
		Paused:     "holds no node until it is resumed, or until its owner has answered a question",
		Cancelling: "being cancelled; its program is being stopped",
		Succeeded:  "its program succeeded",
		Failed:     "failed for the cause in its reason and will not be retried",
		Cancelled:  "was cancelled, or a job it depends on did not succeed",
	}

	var list []StatusWord
	seen := map[Status]bool{}
	add := func(w StatusWord) {
		if !seen[w.Status] {
			seen[w.Status] = true
			list = append(list, w)
		}
	}

	for _, s := range States() {
		add(StatusWord{stateStatus[s], s, means[s]})

		if s == Running {
			add(StatusWord{StatusSuspended, s, "its program is suspended in place while another job uses its GPU"})
		}

		if s != Failed {
			continue
		}

		for _, h := range Catalogue() {
			if h.Status != StatusCancelled {
				add(StatusWord{h.Status, s, "ended: " + meansOf(h.Status)})
			}
		}
	}

	return list
}

// meansOf joins the meanings of the causes that are shown by one word.
func meansOf(s Status) string {
	var parts []string
	for _, h := range Catalogue() {
		if h.Status == s {
			parts = append(parts, h.Meaning)
		}
	}

	return strings.Join(parts, ", or ")
}
