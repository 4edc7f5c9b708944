package agents_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/engine/agents"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

func order(n uint64, node id.Node) yardmaster.Order {
	return yardmaster.Order{Run: id.NewRun(id.NewJob(n), 1), Job: id.NewJob(n), Epoch: 1, Node: node}
}

// keys names the orders of a node.
func keys(h *agents.Hub, n id.Node) []string {
	orders, _, _ := h.Desired(n)
	var list []string
	for i := range orders {
		list = append(list, orders[i].Key())
	}

	return list
}

// changed reports whether a channel was closed.
func changed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestNodeIsToldOfItsOwnOrdersAlone(t *testing.T) {
	t.Parallel()
	h := agents.New([]yardmaster.Order{order(10, "a"), order(2, "a"), order(3, "b")})
	if diff := cmp.Diff([]string{"j10.1/0", "j2.1/0"}, keys(h, "a")); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff([]string{"j3.1/0"}, keys(h, "b")); diff != "" {
		t.Error(diff)
	}

	if got := keys(h, "unknown"); got != nil {
		t.Errorf("a node without orders shall run %v", got)
	}
}

func TestGenerationGrowsWithEveryChange(t *testing.T) {
	t.Parallel()
	h := agents.New(nil)
	_, first, wait := h.Desired("a")
	_, other, waitOther := h.Desired("b")
	h.Carry([]yardmaster.Order{order(1, "a"), order(2, "a")}, nil)

	if !changed(wait) || changed(waitOther) {
		t.Errorf("a is woken: %v, b: %v; want a alone", changed(wait), changed(waitOther))
	}

	_, second, wait := h.Desired("a")
	if second <= first || h.Generation("a") != second || h.Generation("b") != other {
		t.Errorf(
			"a went from generation %d to %d (%d), b from %d to %d",
			first,
			second,
			h.Generation("a"),
			other,
			h.Generation("b"),
		)
	}

	stop := order(1, "a")
	stop.Stop = job.StopTerm
	h.Carry([]yardmaster.Order{stop}, nil)

	orders, third, _ := h.Desired("a")
	if !changed(wait) || third <= second || orders[0].Stop != job.StopTerm {
		t.Errorf("a stop: woken %v, generation %d after %d, %+v", changed(wait), third, second, orders)
	}

	h.Carry(nil, []string{"j1.1/0", "j9.1/0"})

	if diff := cmp.Diff([]string{"j2.1/0"}, keys(h, "a")); diff != "" {
		t.Error(diff)
	}

	last := h.Generation("a")
	h.Carry(nil, []string{"j1.1/0"}) // closed before: nothing changes
	h.Carry(nil, nil)

	if got := h.Generation("a"); got != last {
		t.Errorf("generation %d, want %d: nothing has changed", got, last)
	}
}

func TestOrderThatIsClosedInTheSameBreathIsGone(t *testing.T) {
	t.Parallel()
	h := agents.New(nil)
	h.Carry([]yardmaster.Order{order(1, "a")}, []string{"j1.1/0"})

	if got := keys(h, "a"); got != nil {
		t.Errorf("a shall run %v, want nothing", got)
	}
}

// TestNoChangeIsMissed lets agents wait and look while orders come and go. An
// agent that waits on the channel it was given must see the last change.
func TestNoChangeIsMissed(t *testing.T) {
	t.Parallel()
	const nodes, orders = 4, 500
	h := agents.New(nil)

	var all sync.WaitGroup
	for n := range nodes {
		node := id.Node(fmt.Sprint("n", n))
		all.Go(func() {
			seen := uint64(0)

			for {
				list, generation, wait := h.Desired(node)
				if generation < seen {
					t.Errorf("generation went from %d to %d", seen, generation)
				}

				seen = generation

				if len(list) == 1 && list[0].Rank == 99 { // the last word
					return
				}

				<-wait
			}
		})

		all.Go(func() {
			first := uint64(n*orders*2 + 1)
			for i := first; i < first+orders; i++ {
				h.Carry([]yardmaster.Order{order(i, node)}, nil)
				h.Carry(nil, []string{fmt.Sprintf("j%d.1/0", i)})
			}

			last := order(first+orders, node)
			last.Rank = 99
			h.Carry([]yardmaster.Order{last}, nil)
		})
	}

	all.Wait()
}
