package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"trainyard/internal/atomicfile"
	"trainyard/internal/job"
)

// memory is what the agent remembers about the server between its starts.
type memory struct {
	Server       string       `json:"server"`
	ContactLease job.Duration `json:"contact_lease"`
	Place        string       `json:"place,omitempty"` // the machine and directory where an agent was admitted last
}

const memoryFile = "agent.json"

func (a *Agent) path(name string) string { return filepath.Join(a.cfg.Dir, name) }

func loadMemory(dir string) (memory, error) {
	var m memory
	text, err := os.ReadFile(filepath.Join(dir, memoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}

	if err == nil {
		err = json.Unmarshal(text, &m)
	}

	if err != nil {
		return m, fmt.Errorf("read the agent's state file: %w", err)
	}

	return m, nil
}

// saveMemory stores the contact lease and the address of the server if they changed.
func (a *Agent) saveMemory(lease job.Duration) error {
	return a.remember(memory{Server: a.cfg.Server, ContactLease: lease, Place: a.memory.Place})
}

// rememberPlace stores where this agent was admitted.
func (a *Agent) rememberPlace(place string) error {
	m := a.memory
	m.Place = place

	return a.remember(m)
}

// remember stores what has changed.
func (a *Agent) remember(m memory) error {
	if m == a.memory {
		return nil
	}

	text, err := json.Marshal(m)
	if err == nil {
		err = atomicfile.Write(a.path(memoryFile), text, atomicfile.SingleWriter())
	}

	if err != nil {
		return fmt.Errorf("write the agent's state file: %w", err)
	}

	a.memory = m

	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}
