package yardmaster

import "trainyard/internal/yardmaster/batch"

// What leaves the yard, and what it is filled with again after a restart.
type (
	Batch = batch.Batch
	Event = batch.Event
	Order = batch.Order
	State = batch.State

	Incarnation = batch.Incarnation
	Numbers     = batch.Numbers
)
