package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"trainyard/internal/atomicfile"
	"trainyard/internal/contact"
	"trainyard/internal/job"
)

// memory is what the agent remembers about the server between its starts.
type memory struct {
	Server       string       `json:"server"`                  // the address of the newest grant
	ContactLease job.Duration `json:"contact_lease"`           // its lease
	ContactGrace job.Duration `json:"contact_grace,omitempty"` // and its grace period
	Servers      []string     `json:"servers,omitempty"`       // all addresses that the server has named
	StandbyKnown bool         `json:"standby_known,omitempty"` // the server has said whether another may take over
	Standby      bool         `json:"standby,omitempty"`       // and that one may
	Place        string       `json:"place,omitempty"`         // the machine and directory where an agent was admitted last
}

// grant returns the newest grant.
func (m *memory) grant() contact.Grant {
	return contact.Granted(time.Duration(m.ContactLease), time.Duration(m.ContactGrace))
}

// yard returns what the server has said about the servers of the yard.
func (m *memory) yard() contact.Yard {
	return contact.Yard{Known: m.StandbyKnown, Standby: m.Standby}
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

// JoinedServer returns the address of the server whose agent has this data directory, "" if it has joined none.
func JoinedServer(dir string) (string, error) {
	m, err := loadMemory(dir)
	return m.Server, err
}

// rememberPlace stores where this agent was admitted.
func (a *Agent) rememberPlace(place string) error {
	m := a.memory
	m.Place = place

	return a.saveMemory(m)
}

// saveMemory stores what is remembered about the server if it changed.
func (a *Agent) saveMemory(m memory) error {
	if reflect.DeepEqual(m, a.memory) {
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
