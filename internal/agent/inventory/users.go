package inventory

import (
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"trainyard/internal/job"
)

// Process is a process that uses a GPU, so that people can be told whose it is.
type Process struct {
	GPU     int
	PID     int
	User    string // "" if it cannot be told
	Program string
	Memory  job.Bytes // of the GPU
	// Ours says that it belongs to a run of this node, Seen that the kernel shows it
	// at all: one in another container may be anyone's.
	Ours, Seen bool

	paints bool // it draws on a screen and does not compute
}

// maxAncestors bounds how far up the parents of a process are followed.
const maxAncestors = 64

// introduce adds what the kernel knows about a process. dir is where the runs
// of this node are: each process of theirs carries its folder in its
// environment, or descends from one that does.
func (p *Process) introduce(root, dir string) {
	proc := filepath.Join(root, "proc", strconv.Itoa(p.PID))
	info, err := os.Stat(proc)
	if err != nil {
		return
	}

	p.Seen = true
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		p.User = userName(st.Uid)
	}

	if name := programName(readText(filepath.Join(proc, "cmdline"))); name != "" {
		p.Program = name
	}

	for pid, n := p.PID, 0; pid > 1 && n < maxAncestors && !p.Ours; n++ {
		p.Ours = ofRun(root, pid, dir)
		pid = parent(root, pid)
	}
}

// ofRun reports whether a process was started for a run below dir.
func ofRun(root string, pid int, dir string) bool {
	environ := readText(filepath.Join(root, "proc", strconv.Itoa(pid), "environ"))
	for entry := range strings.SplitSeq(environ, "\x00") {
		if folder, ok := strings.CutPrefix(entry, rankDirVar); ok {
			rel, err := filepath.Rel(dir, folder)
			return err == nil && filepath.IsLocal(rel)
		}
	}

	return false
}

// rankDirVar is how the runtime tells a rank its folder.
const rankDirVar = "TRAINYARD_RANK_DIR="

// parent returns the parent of a process, 0 if it cannot be told.
func parent(root string, pid int) int {
	stat := readText(filepath.Join(root, "proc", strconv.Itoa(pid), "stat"))

	// The name in parentheses may hold anything.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}

	up, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}

	return up
}

// programName is what people call a program: its file, and the script if it
// runs one. The other arguments may hold secrets.
func programName(cmdline string) string {
	args := strings.Split(strings.TrimRight(cmdline, "\x00"), "\x00")
	name := path.Base(args[0])

	if args[0] == "" {
		return ""
	}

	if strings.HasPrefix(name, "python") {
		for _, arg := range args[1:] {
			if strings.HasSuffix(arg, ".py") {
				return word(name + " " + path.Base(arg))
			}
		}
	}

	return word(name)
}

// userName returns the name of a user of this machine, or their number.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	u, err := user.LookupId(number)
	if err != nil {
		return "user " + number
	}

	return word(u.Username)
}
