// Package engine is the port through which runs are carried out.
//
// The yardmaster opens, changes and closes orders; after they are stored the
// server hands them to an engine. An engine may receive the same order
// several times and must carry it out once. What happens comes back to the
// yardmaster as messages. Adapters are the folders below: agents now, others
// beside it later.
package engine

import "trainyard/internal/yardmaster"

// Engine carries out orders. It must not block: long work is done in the background.
type Engine interface {
	// Carry takes orders that were opened or changed, and the keys of closed orders.
	Carry(orders []yardmaster.Order, closed []string)
}
