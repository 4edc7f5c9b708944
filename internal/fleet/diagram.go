package fleet

import (
	"fmt"
	"strings"
)

// Diagram returns the life of a node as a Mermaid state diagram.
func Diagram() string {
	var out strings.Builder
	out.WriteString("stateDiagram-v2\n    [*] --> " + string(Ready) + ": join\n")

	for _, from := range States() {
		for _, ev := range Events() {
			if to, ok := transitions[from][ev]; ok {
				fmt.Fprintf(&out, "    %s --> %s: %s\n", from, to, ev)
			}
		}
	}

	for _, s := range States() {
		if len(transitions[s]) == 0 {
			fmt.Fprintf(&out, "    %s --> [*]\n", s)
		}
	}

	return out.String()
}

// LeaseDiagram returns the life of a lease as a Mermaid state diagram.
func LeaseDiagram() string {
	var out strings.Builder
	out.WriteString(
		"stateDiagram-v2\n    [*] --> " + string(LeaseRequested) + ": provision\n    [*] --> " + string(LeaseReleasing) +
			": found without a lease\n",
	)

	for _, from := range LeaseStates() {
		for _, ev := range LeaseEvents() {
			if to, ok := leaseTransitions[from][ev]; ok && to != from {
				fmt.Fprintf(&out, "    %s --> %s: %s\n", from, to, ev)
			}
		}
	}

	for _, s := range LeaseStates() {
		if s.Final() {
			fmt.Fprintf(&out, "    %s --> [*]\n", s)
		}
	}

	return out.String()
}
