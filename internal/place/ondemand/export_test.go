package ondemand

import (
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// KnowsPatience reports whether a policy knows how long a job of this number waits.
func KnowsPatience(p place.Policy, it *queue.Item) bool {
	w, ok := p.(*Policy)
	if !ok {
		return false
	}

	_, known := w.patiences.Known(it)

	return known
}
