package rundir

import (
	"path/filepath"

	"trainyard/internal/job"
)

// RequestSuspend asks the supervisor of a rank to suspend its program or to let it continue, as the order says. An
// order whose number is not greater than that of the last one changes nothing. The caller makes one request at a
// time. A supervisor of an earlier version does not look.
func RequestSuspend(dir string, order job.SuspendOrder) error {
	last, err := ReadSuspend(dir)
	if err != nil {
		return err
	}

	if order.Number > last.Number {
		if err := WriteJSON(filepath.Join(dir, SuspendFile), order, false); err != nil {
			return err
		}
	}

	return Poke(filepath.Join(dir, ControlPipe), "s")
}

// ReadSuspend returns the last order to suspend the program of a rank or to let it continue; zero if there was none.
func ReadSuspend(dir string) (job.SuspendOrder, error) {
	var order job.SuspendOrder
	_, err := ReadJSON(filepath.Join(dir, SuspendFile), &order)

	return order, err
}
