package rundir

import "path/filepath"

// RequestEviction asks the supervisor of a rank to stop it for a reason that lies in what its program does. The first
// reason stays. A supervisor of an earlier version does not look.
func RequestEviction(dir, reason string) error {
	first, err := ReadEviction(dir)
	if err != nil {
		return err
	}

	if first == "" {
		if err := WriteJSON(filepath.Join(dir, EvictFile), reason, false); err != nil {
			return err
		}
	}

	return Poke(filepath.Join(dir, ControlPipe), "s")
}

// ReadEviction returns why the agent stops a rank, "" if it does not.
func ReadEviction(dir string) (string, error) {
	var reason string
	_, err := ReadJSON(filepath.Join(dir, EvictFile), &reason)

	return reason, err
}
