// Package engine is the port through which runs are carried out.
//
// The yardmaster opens, changes and closes orders; after they are stored the
// server hands them to an engine. An engine may be told of the same order
// again and must then do nothing new. What happens comes back to the
// yardmaster as messages. Adapters are the folders below: agents now, others
// beside it later.
package engine

import "trainyard/internal/yardmaster"

// Engine carries out orders. It must not block: what takes time it does by itself.
type Engine interface {
	// Carry is told of orders that were opened or changed, and of keys of
	// orders that are done with.
	Carry(orders []yardmaster.Order, closed []string)
}
