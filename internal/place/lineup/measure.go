package lineup

import (
	"fmt"
	"math"
	"time"

	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Processors is how many processors a job needs in all: GPUs, or CPUs if it needs none.
func Processors(it *queue.Item) float64 {
	n := &it.Shape.Need
	each := float64(n.GPUs)
	if n.MaxGPUs == 0 {
		each = float64(n.CPUs) / 1000
	}

	return math.Max(each*float64(n.Nodes), 1)
}

// Served is the GPU-seconds that a job has had.
func Served(now time.Time, it *queue.Item, run *place.Running) float64 {
	if run != nil {
		return run.Served(now)
	}

	return it.Outlook.Served
}

// ServedAsked is the GPU-seconds that a job would have needed on what it asks for to come as far as it has.
func ServedAsked(now time.Time, it *queue.Item, run *place.Running) float64 {
	if run != nil {
		return run.ServedAsked(now)
	}

	return it.Outlook.Served
}

// NodeNames names the nodes of seats.
func NodeNames(seats []place.Allocation) string {
	if len(seats) > 1 {
		return fmt.Sprintf("%s and %d more", seats[0].Node, len(seats)-1)
	}

	return string(seats[0].Node)
}

// TrueFirst compares two conditions for sorting: what is true comes before what is false.
func TrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}

	return 1
}
