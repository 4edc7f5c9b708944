// Package sandbox runs a program in namespaces of its own, as a user of its own and without privileges.
//
// The program runs in a Space: a pid, a mount and an IPC namespace. It sees no processes but its own, and of the
// machine's files what its View shows: the agent's data directory is covered, the folders of the run are mounted into
// it, and /tmp and /dev/shm are private. The first process of a space is Init, which package subprocess
// runs. It keeps its privileges, mounts the view, starts the program, runs what the supervisor asks for beside it
// (CRIU, see package snapshot) and reaps what the program leaves.
//
// A program with a User gets that user's ids and nothing else: no_new_privs is set, every capability is dropped, also
// from the bounding set, and a seccomp filter refuses the calls that no training needs and through which kernels have
// been attacked. A program without a User keeps the rights of the agent; only its view is its own.
//
// A program with a Container joins the namespaces of one that an engine has made, and gets its view inside of that.
//
// The package also gives folders to users (Own) without following a link that a program has made. It decides nothing
// about runs: the supervisor of a rank calls it.
package sandbox

import (
	"fmt"
	"path/filepath"
	"strings"
)

// User is whom a program runs as.
type User struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups,omitempty"` // further ones
}

// View is what a program sees of the machine's files.
type View struct {
	// Covers are directories whose content is not seen.
	Covers []string `json:"covers,omitempty"`
	// Mounts are what is seen in another place, or inside of what is covered.
	Mounts []Mount `json:"mounts,omitempty"`
	// Masks are files that cannot be opened, such as the devices of GPUs that others use.
	Masks []string `json:"masks,omitempty"`
}

// Mount shows a file or directory of the machine.
type Mount struct {
	From     string `json:"from,omitempty"` // "" for an empty directory in memory
	To       string `json:"to"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Inside returns the path under which the program sees a file of the machine.
func (v View) Inside(path string) string {
	best, found := Mount{}, false
	for _, m := range v.Mounts {
		if m.From != "" && below(path, m.From) && len(m.From) >= len(best.From) {
			best, found = m, true
		}
	}

	if !found {
		return path
	}

	return filepath.Join(best.To, strings.TrimPrefix(path, best.From))
}

// below reports whether a path is a directory, or lies in it.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// Program is what runs in a space.
type Program struct {
	Path string   `json:"path"` // "" for the shell of its container; Args[0] is then set, too
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"` // as the program sees it
	View View     `json:"view"`
	// Container is joined by the program; nil for the files and the network of the machine.
	Container *Container `json:"container,omitempty"`
	// User is whom it runs as; nil for the user of the agent, with all rights.
	User *User `json:"user,omitempty"`
	// FirstPID is the smallest pid of the program's processes; 0 for any. What runs beside it has smaller ones.
	FirstPID int `json:"first_pid,omitempty"`
	// MaxProcesses is how many processes all programs of the user may have together; 0 for no limit.
	MaxProcesses int `json:"max_processes,omitempty"`
}

// Command is run beside the program, with the rights of the agent.
type Command struct {
	Path string   `json:"path"`
	Args []string `json:"args"` // without the name
	Env  []string `json:"env"`
}

// Continuation makes the processes of a program instead of starting it.
type Continuation struct {
	Command Command `json:"command"` // its descriptors StdoutFD and StderrFD are the output of the program
	PID     int     `json:"pid"`     // of the program then, in the namespace
	LastPID int     `json:"last_pid"`
}

// Result is how a command ended.
type Result struct {
	Code    int // exit code; -1 if a signal ended it
	LastPID int // newest pid of the namespace
}

func (u *User) String() string { return fmt.Sprintf("%s (uid %d)", u.Name, u.UID) }
