package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

func TestLabels(t *testing.T) {
	t.Parallel()

	for _, good := range [][]string{nil, {"ssd"}, {"zone=a", "zone=b", "net.speed=100-g", "x_1"}} {
		if err := fleet.CheckLabels(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}

	for _, bad := range []string{"", "=", "=a", "a=", "a=b=c", "a b", "A", "a|b", "é", strings.Repeat("a", 64)} {
		if err := fleet.CheckLabels([]string{bad}); err == nil {
			t.Errorf("%q is a label", bad)
		}
	}

	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprint("l", i))
	}

	for _, bad := range [][]string{{"a", "a"}, many} {
		if err := fleet.CheckLabels(bad); err == nil {
			t.Errorf("%q are labels", bad)
		}
	}
}

func TestAJobWithLabelsRunsOnNodesThatHaveThemAll(t *testing.T) {
	t.Parallel()

	need := fleet.NeedOf(&job.Spec{Labels: []string{"ssd", "zone=a"}, Place: job.PlaceAny}, job.Floor{}, nil)
	if !need.Pinned() || !need.Particular() {
		t.Error("a node could be provisioned for a job that wants labels")
	}

	for text, want := range map[string]bool{
		"ssd zone=a": true, "zone=a fast ssd": true, "ssd": false, "ssd zone=b": false, "zone=ab ssd": false, "": false,
	} {
		table := fleet.NewTable()
		table.Put(&fleet.Node{ID: "n", State: fleet.Ready, Class: fleet.Local, Inventory: fleet.Inventory{
			CPUs: 8000, Memory: 1 << 30, Labels: strings.Fields(text),
		}}, 0)
		room, _ := table.Get("n")

		if got := fleet.NewMatcher(need).Eligible(room); got != want {
			t.Errorf("a node with the labels %q could run it: %t", text, got)
		}
	}
}

// Jobs are sent to nodes by their labels, so that a node may not give itself more of them.
func TestLabelsThatANodeDidNotHaveAreGrowth(t *testing.T) {
	t.Parallel()

	inv := fleet.Inventory{CPUs: 1000, Labels: []string{"ssd", "zone=a"}}
	accepted := inv.Hardware()

	fewer := fleet.Inventory{CPUs: 1000, Labels: []string{"zone=a"}}
	if got := accepted.Growth(&fewer); got != "" {
		t.Errorf("fewer labels are growth: %s", got)
	}

	more := fleet.Inventory{CPUs: 1000, Labels: []string{"ssd", "secure"}}
	if got := accepted.Growth(&more); got != "label secure" {
		t.Errorf("another label is growth: %q", got)
	}
}
